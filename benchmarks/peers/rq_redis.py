"""Owns RQ on Redis as a contender, at the best settings that we found for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar

from redis import Redis
from rq import Queue, SimpleWorker
from rq.timeouts import BaseDeathPenalty

from benchmarks.peer import Starts
from benchmarks.peers.redis_peer import BlockingPeer, serve_in_thread

_noted: list[int] = []
_note: Callable[[int], None] = _noted.append
"""RQ finds its functions by their names, so that what they note by cannot be bound to them."""


def noop() -> None:
    """Note the start."""
    _note(time.monotonic_ns())


def stamped(sent: int) -> None:
    """Note how long ago the enqueue began."""
    _note(time.monotonic_ns() - sent)


class _NoTimeout(BaseDeathPenalty):
    """Watches over no job: neither by signals, which are the main thread's, nor by threads."""

    def setup_death_penalty(self) -> None:
        """Nothing."""

    def cancel_death_penalty(self) -> None:
        """Nothing."""


class _ThreadWorker(SimpleWorker):
    """Runs jobs in its own process, which is faster than a fork for each."""

    death_penalty_class = _NoTimeout

    def _install_signal_handlers(self) -> None:
        """Nothing: it does not run in the main thread."""


class RqRedis(BlockingPeer):
    """RQ without forks; results are not kept."""

    name: ClassVar[str] = "RQ"
    settings: ClassVar[str] = "SimpleWorker (no fork for each job), no timeouts, result_ttl 0"
    left: ClassVar[str] = (
        "return redis.call('LLEN', 'rq:queue:race') + redis.call('ZCARD', 'rq:wip:race')"
    )

    def __init__(self, url: str, starts: Starts) -> None:
        global _note
        _note = starts.note_in_thread
        self._redis = Redis.from_url(url)
        self._queue = Queue("race", connection=self._redis)

    def enqueue_blocking(self) -> None:
        """Enqueue one no-op, and return when Redis has it."""
        self._queue.enqueue(noop, result_ttl=0)

    async def enqueue_bulk(self, count: int, *, kind: str, priority: int) -> None:
        """Enqueue many no-ops in one call."""
        del kind, priority
        self._queue.enqueue_many([Queue.prepare_data(noop, result_ttl=0) for _ in range(count)])

    async def enqueue_stamped(self) -> None:
        """Enqueue one job that carries the moment just before this call."""
        self._queue.enqueue(stamped, time.monotonic_ns(), result_ttl=0)

    async def work(self, slots: int | None, *, idle: bool) -> None:
        """Serve as a worker until cancelled."""
        del slots, idle
        worker: Any = _ThreadWorker([self._queue], connection=self._redis)
        await serve_in_thread(
            lambda: worker.work(logging_level="ERROR"),
            lambda: setattr(worker, "_stop_requested", True),
        )
