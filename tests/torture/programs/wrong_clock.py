"""Owns a process's wrong clock: everything that Python tells about the time of day is off.

What is left alone is what no wrong clock changes: monotonic time.
"""

from __future__ import annotations

import datetime as dt
import time
from typing import Any

REAL = dt.datetime


def shift(seconds: float) -> None:
    """Move the time of day of this process; to be called before others keep what is replaced."""
    true_time, true_time_ns = time.time, time.time_ns
    real: Any = dt.datetime

    class Wrong(real):  # type: ignore[misc]
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Any:
            return real.fromtimestamp(true_time() + seconds, tz)

        @classmethod
        def utcnow(cls) -> Any:
            return real.fromtimestamp(true_time() + seconds, dt.UTC).replace(tzinfo=None)

    time.time = lambda: true_time() + seconds
    time.time_ns = lambda: true_time_ns() + int(seconds * 1e9)
    dt.datetime = Wrong  # type: ignore[misc]
