"""Owns dramatiq on Redis as a contender, at the best settings that we found for it."""

from __future__ import annotations

import asyncio
import time
from typing import Any, ClassVar

import dramatiq
import dramatiq.brokers.redis

from benchmarks.peer import Starts
from benchmarks.peers.redis_peer import BlockingPeer

_THREADS = 16
_dramatiq: Any = dramatiq
"""Half of its types are missing."""


class DramatiqRedis(BlockingPeer):
    """dramatiq with threads."""

    name: ClassVar[str] = "dramatiq"
    settings: ClassVar[str] = f"{_THREADS} worker threads"
    left: ClassVar[str] = "return redis.call('HLEN', 'dramatiq:default.msgs')"

    def __init__(self, url: str, starts: Starts) -> None:
        self._broker: Any = _dramatiq.brokers.redis.RedisBroker(url=url)
        note = starts.note_in_thread

        def noop() -> None:
            note(time.monotonic_ns())

        def stamped(sent: int) -> None:
            note(time.monotonic_ns() - sent)

        self._noop: Any = _dramatiq.actor(noop, broker=self._broker)
        self._stamped: Any = _dramatiq.actor(stamped, broker=self._broker)

    def enqueue_blocking(self) -> None:
        """Enqueue one no-op, and return when Redis has it."""
        self._noop.send()

    async def enqueue_bulk(self, count: int, *, kind: str, priority: int) -> None:
        """Enqueue many no-ops. A group is a loop of single enqueues, and it has no other way."""
        del kind, priority
        _dramatiq.group([self._noop.message() for _ in range(count)], broker=self._broker).run()

    async def enqueue_stamped(self) -> None:
        """Enqueue one job that carries the moment just before this call."""
        self._stamped.send(time.monotonic_ns())

    async def work(self, slots: int | None, *, idle: bool) -> None:
        """Serve as a worker until cancelled, in threads of its own."""
        del slots, idle
        worker = _dramatiq.Worker(self._broker, worker_threads=_THREADS, worker_timeout=100)
        worker.start()
        try:
            await asyncio.Event().wait()
        finally:
            worker.stop(timeout=1_000)
