"""Owns the measure of a day that retention empties: how long producers and workers are held up.

A producer enqueues at a steady pace, and an otherwise idle worker runs what it gets. For some
windows of time nothing else happens; in others, between them, a day of the ring is emptied.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta

import psycopg

from benchmarks.growth.fill import DAYS
from benchmarks.growth.stage import Stage
from windlass import Windlass

_PACE_SECONDS = 0.01
_SETTLE_SECONDS = 0.5
"""What the traffic gets to recover from a count of millions of rows, before its waits count."""
_DAY = timedelta(days=1)
_PRUNE = b"SELECT windlass.prune(%s, NULL, '1 hour', '1 day', 1000)"
_ROWS = "SELECT count(*) FROM windlass.finished_jobs"


@dataclass(frozen=True, kw_only=True)
class Window:
    """The longest waits in a span of time, in seconds."""

    enqueue: float
    """The longest call of a producer."""
    start: float
    """The longest time from a call to the handler's first line."""
    emptied: int = 0
    """How many finished jobs were deleted meanwhile."""
    prune: float = 0.0
    """What their deletion took."""


@dataclass
class _Traffic:
    """What the producer and the worker have seen since it was last cleared."""

    calls: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    def taken(self, *, emptied: int = 0, prune: float = 0.0) -> Window:
        window = Window(
            enqueue=max(self.calls, default=0.0),
            start=max(self.waits, default=0.0),
            emptied=emptied,
            prune=prune,
        )
        self.calls.clear()
        self.waits.clear()
        return window


async def windows(stage: Stage, *, days: int, seconds: float) -> Sequence[tuple[Window, Window]]:
    """Return pairs of windows: nothing happens in the first, a day goes in the second."""
    found = []
    async with _traffic(stage.url) as traffic:
        await asyncio.sleep(2 * seconds)
        for number in range(days):
            before = await _count(stage)
            await asyncio.sleep(_SETTLE_SECONDS)
            traffic.taken()
            await asyncio.sleep(seconds)
            quiet = traffic.taken()
            took = await asyncio.to_thread(_prune, stage.url, (DAYS - 1 - number) * _DAY)
            await asyncio.sleep(max(seconds - took, seconds / 2))
            busy = traffic.taken(emptied=0, prune=took)
            emptied = before - await _count(stage)
            found.append((quiet, Window(**{**vars(busy), "emptied": emptied})))
    return found


async def _count(stage: Stage) -> int:
    """Count the finished jobs, in a thread: the worker's jobs would wait for it in this loop."""
    return int(await asyncio.to_thread(stage.value, _ROWS))


def _prune(url: str, kept: timedelta) -> float:
    with psycopg.connect(url, autocommit=True) as db:
        began = time.perf_counter()
        db.execute(_PRUNE, (kept,))
        return time.perf_counter() - began


@asynccontextmanager
async def _traffic(url: str) -> AsyncIterator[_Traffic]:
    """Enqueue at a steady pace from a thread, and run the jobs in this loop."""
    traffic, over = _Traffic(), threading.Event()
    app = Windlass(url, log_level="warning")

    @app.job(queue="traffic")
    async def arrive(sent: float) -> None:
        traffic.waits.append(time.perf_counter() - sent)

    def produce() -> None:
        while not over.wait(_PACE_SECONDS):
            began = time.perf_counter()
            arrive.enqueue(began)
            traffic.calls.append(time.perf_counter() - began)

    worker = asyncio.create_task(app.arun_worker(queues=["traffic"]))
    producer = asyncio.create_task(asyncio.to_thread(produce))
    try:
        yield traffic
    finally:
        over.set()
        await producer
        worker.cancel()
        with suppress(asyncio.CancelledError):
            await worker
        await app.aclose()
