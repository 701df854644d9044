"""Owns a worker's clocks: that of its loop, and its host's compared with the store's.

Only the store's clock decides.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta


class ClockGauge:
    """Compares the host's clock with the store's whenever the store was asked for the
    time anyway.
    """

    def __init__(self) -> None:
        self.ahead = timedelta(0)
        """Least difference by which this host's clock is ahead; negative if it is behind."""

    def host_time(self) -> datetime:
        """Return what time it is by this host."""
        return datetime.now(UTC)

    def compare(self, asked: datetime, store_time: datetime) -> None:
        """Compare the store's answer with the host's clock; a slow answer does not count as a
        difference.
        """
        answered = self.host_time()
        if store_time < asked:
            self.ahead = asked - store_time
        else:
            self.ahead = min(answered - store_time, timedelta(0))


def clock_of(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """Return the clock of a loop; for most loops that is a C function, three times as fast."""
    is_usual = getattr(loop.time, "__func__", None) is asyncio.BaseEventLoop.time
    return time.monotonic if is_usual else loop.time
