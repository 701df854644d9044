"""Owns a worker's clocks: its loop's, and its host's beside the store's, which alone decides."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta


class ClockGauge:
    """Compares the two whenever somebody has asked the store for the time anyway."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)
        """By how much, at least, this host's clock is ahead; below 0: behind."""

    def host_time(self) -> datetime:
        """Return what time it is by this host."""
        return datetime.now(UTC)

    def compare(self, asked: datetime, store_time: datetime) -> None:
        """Take the store's answer to who asked it then: a slow answer accuses no clock."""
        answered = self.host_time()
        if store_time < asked:
            self.ahead = asked - store_time
        else:
            self.ahead = min(answered - store_time, timedelta(0))


def clock_of(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """Return what tells the time of a loop: for most a function of C, in a third of the time."""
    is_usual = getattr(loop.time, "__func__", None) is asyncio.BaseEventLoop.time
    return time.monotonic if is_usual else loop.time
