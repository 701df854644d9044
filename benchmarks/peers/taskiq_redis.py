"""Owns taskiq on Redis as a contender, by streams and by lists, at the best settings found."""

from __future__ import annotations

import asyncio
import time
from typing import Any, ClassVar

import uvloop
from taskiq import AsyncBroker
from taskiq.receiver import Receiver
from taskiq_redis import ListQueueBroker, RedisStreamBroker

from benchmarks.peer import Starts
from benchmarks.peers.redis_peer import RedisPeer

_TASKS = 100
_READ = 500
_TOGETHER = 100
"""Enqueues under way at once: it has no bulk call."""


class TaskiqStreams(RedisPeer):
    """taskiq with streams: acknowledged after the run."""

    name: ClassVar[str] = "taskiq, streams"
    settings: ClassVar[str] = f"uvloop, {_TASKS} tasks, prefetch {_TASKS}, xread_count {_READ}"
    left: ClassVar[str] = """
        local left = 0
        for _, group in ipairs(redis.call('XINFO', 'GROUPS', 'taskiq')) do
            for at = 1, #group, 2 do
                if group[at] == 'pending' or group[at] == 'lag' then
                    left = left + group[at + 1]
                end
            end
        end
        return left
    """
    new_loop = staticmethod(uvloop.new_event_loop)

    def __init__(self, url: str, starts: Starts) -> None:
        self._broker = self.make_broker(url)
        note = starts.note

        async def noop() -> None:
            note(time.monotonic_ns())

        async def stamped(sent: int) -> None:
            note(time.monotonic_ns() - sent)

        self._noop: Any = self._broker.task(task_name="noop")(noop)
        self._stamped: Any = self._broker.task(task_name="stamped")(stamped)

    def make_broker(self, url: str) -> AsyncBroker:
        """Return its broker for a server."""
        return RedisStreamBroker(url, xread_count=_READ)

    async def install(self) -> None:
        """Make the group, which sees only what was sent after it was made."""
        await self._broker.startup()
        await self._broker.shutdown()

    async def open(self) -> None:
        """Connect."""
        await self._broker.startup()

    async def enqueue(self) -> None:
        """Enqueue one no-op, and return when Redis has it."""
        await self._noop.kiq()

    async def enqueue_bulk(self, count: int, *, kind: str, priority: int) -> None:
        """Enqueue many no-ops, some at a time: it has no bulk call."""
        del kind, priority
        for done in range(0, count, _TOGETHER):
            some = min(_TOGETHER, count - done)
            await asyncio.gather(*(self._noop.kiq() for _ in range(some)))

    async def enqueue_stamped(self) -> None:
        """Enqueue one job that carries the moment just before this call."""
        await self._stamped.kiq(time.monotonic_ns())

    async def work(self, slots: int | None, *, idle: bool) -> None:
        """Serve as a worker until cancelled."""
        del idle
        self._broker.is_worker_process = True
        receiver = Receiver(
            self._broker,
            max_async_tasks=slots or _TASKS,
            max_prefetch=_TASKS,
            run_startup=False,
        )
        finish = asyncio.Event()
        serving = asyncio.create_task(receiver.listen(finish))
        try:
            await asyncio.shield(serving)
        finally:
            finish.set()  # It does not end by being cancelled.

    async def close(self) -> None:
        """Let go of the connections."""
        await self._broker.shutdown()


class TaskiqLists(TaskiqStreams):
    """taskiq with a list: what was popped and has not ended is lost by a crash."""

    name: ClassVar[str] = "taskiq, lists"
    settings: ClassVar[str] = f"uvloop, {_TASKS} tasks, prefetch {_TASKS}; acks before the run"
    left: ClassVar[str] = "return redis.call('LLEN', 'taskiq')"

    def make_broker(self, url: str) -> AsyncBroker:
        """Return its broker for a server."""
        return ListQueueBroker(url)
