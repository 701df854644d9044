"""Owns SAQ on Redis as a contender, at the best settings that we found for it."""

from __future__ import annotations

import asyncio
import time
from typing import Any, ClassVar

import uvloop
from saq import Queue, Worker

from benchmarks.peer import Starts
from benchmarks.peers.redis_peer import RedisPeer

_CONCURRENCY = 50
_TOGETHER = 100
"""Enqueues under way at once: it has no bulk call."""


class SaqRedis(RedisPeer):
    """SAQ; what is done is deleted."""

    name: ClassVar[str] = "SAQ"
    settings: ClassVar[str] = f"uvloop, concurrency {_CONCURRENCY}, ttl -1"
    left: ClassVar[str] = "return redis.call('ZCARD', 'saq:default:incomplete')"
    new_loop = staticmethod(uvloop.new_event_loop)

    def __init__(self, url: str, starts: Starts) -> None:
        self._url = url
        self._starts = starts
        self._queue: Any = None

    async def open(self) -> None:
        """Connect."""
        self._queue = Queue.from_url(self._url)
        await self._queue.connect()

    async def enqueue(self) -> None:
        """Enqueue one no-op, and return when Redis has it."""
        await self._queue.enqueue("noop", ttl=-1)

    async def enqueue_bulk(self, count: int, *, kind: str, priority: int) -> None:
        """Enqueue many no-ops, some at a time: it has no bulk call."""
        del kind, priority
        for done in range(0, count, _TOGETHER):
            some = min(_TOGETHER, count - done)
            await asyncio.gather(*(self._queue.enqueue("noop", ttl=-1) for _ in range(some)))

    async def enqueue_stamped(self) -> None:
        """Enqueue one job that carries the moment just before this call."""
        await self._queue.enqueue("stamped", ttl=-1, sent=time.monotonic_ns())

    async def work(self, slots: int | None, *, idle: bool) -> None:
        """Serve as a worker until cancelled."""
        del idle
        note = self._starts.note

        async def noop(_: Any) -> None:
            note(time.monotonic_ns())

        async def stamped(_: Any, *, sent: int) -> None:
            note(time.monotonic_ns() - sent)

        functions: Any = [("noop", noop), ("stamped", stamped)]
        worker: Any = Worker(self._queue, functions, concurrency=slots or _CONCURRENCY)
        await worker.start()

    async def close(self) -> None:
        """Let go of the connections."""
        await self._queue.disconnect()
