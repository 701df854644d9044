"""Owns Huey on Redis as a contender, at the best settings that we found for it."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from huey import RedisHuey

from benchmarks.peer import Starts
from benchmarks.peers.redis_peer import BlockingPeer, serve_in_thread

_THREADS = 4


class HueyRedis(BlockingPeer):
    """Huey with blocking pops. It forgets a job before it runs it, so that a crash loses it."""

    name: ClassVar[str] = "Huey"
    settings: ClassVar[str] = (
        f"{_THREADS} worker threads, blocking, no results; acks before the run"
    )
    left: ClassVar[str] = "return redis.call('LLEN', 'huey.redis.race')"

    def __init__(self, url: str, starts: Starts) -> None:
        self._huey: Any = RedisHuey("race", url=url, results=False, blocking=True)
        note = starts.note_in_thread

        def noop() -> None:
            note(time.monotonic_ns())

        def stamped(sent: int) -> None:
            note(time.monotonic_ns() - sent)

        self._noop: Any = self._huey.task()(noop)
        self._stamped: Any = self._huey.task()(stamped)

    def enqueue_blocking(self) -> None:
        """Enqueue one no-op, and return when Redis has it."""
        self._noop()

    async def enqueue_bulk(self, count: int, *, kind: str, priority: int) -> None:
        """Enqueue many no-ops. Its own bulk call, `task.map`, is a loop of single enqueues."""
        del kind, priority
        self._noop.map([()] * count)

    async def enqueue_stamped(self) -> None:
        """Enqueue one job that carries the moment just before this call."""
        self._stamped(time.monotonic_ns())

    async def work(self, slots: int | None, *, idle: bool) -> None:
        """Serve as a worker until cancelled."""
        del slots, idle
        consumer = self._huey.create_consumer(workers=_THREADS, periodic=False)
        consumer._set_signal_handlers = lambda: None  # It does not run in the main thread.
        await serve_in_thread(consumer.run, consumer.stop)
