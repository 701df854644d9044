"""Owns arq on Redis as a contender, at the best settings that we found for it.

It is imported only where it runs: its packages are not those of everybody else.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, ClassVar

import uvloop

from benchmarks.peer import Starts
from benchmarks.peers.redis_peer import RedisPeer

_JOBS = 100
_POLL_DELAY = 0.01
_TOGETHER = 20
"""Enqueues under way at once: it has no bulk call."""


class ArqRedis(RedisPeer):
    """arq, which polls; no results are kept."""

    name: ClassVar[str] = "arq"
    settings: ClassVar[str] = (
        f"0.28, uvloop, max_jobs {_JOBS}, poll_delay {_POLL_DELAY} s, keep_result 0"
    )
    left: ClassVar[str] = "return redis.call('ZCARD', 'arq:queue')"
    new_loop = staticmethod(uvloop.new_event_loop)

    def __init__(self, url: str, starts: Starts) -> None:
        from arq.connections import RedisSettings

        self._settings = RedisSettings.from_dsn(url)
        self._starts = starts
        self._pool: Any = None

    async def open(self) -> None:
        """Connect."""
        from arq import create_pool

        self._pool = await create_pool(self._settings)

    async def enqueue(self) -> None:
        """Enqueue one no-op, and return when Redis has it."""
        await self._pool.enqueue_job("noop")

    async def enqueue_bulk(self, count: int, *, kind: str, priority: int) -> None:
        """Enqueue many no-ops, some at a time: it has no bulk call."""
        del kind, priority
        for done in range(0, count, _TOGETHER):
            some = min(_TOGETHER, count - done)
            await asyncio.gather(*(self._pool.enqueue_job("noop") for _ in range(some)))

    async def enqueue_stamped(self) -> None:
        """Enqueue one job that carries the moment just before this call."""
        await self._pool.enqueue_job("stamped", time.monotonic_ns())

    async def work(self, slots: int | None, *, idle: bool) -> None:
        """Serve as a worker until cancelled."""
        from arq.worker import Worker, func

        del idle
        note = self._starts.note

        async def noop(_: Any) -> None:
            note(time.monotonic_ns())

        async def stamped(_: Any, sent: int) -> None:
            note(time.monotonic_ns() - sent)

        worker = Worker(
            [func(noop, name="noop"), func(stamped, name="stamped")],
            redis_settings=self._settings,
            handle_signals=False,
            max_jobs=slots or _JOBS,
            poll_delay=_POLL_DELAY,
            keep_result=0,
        )
        await worker.async_run()

    async def close(self) -> None:
        """Let go of the connections."""
        await self._pool.aclose()
