"""Owns Celery on Redis as a contender, at the best settings that we found for it."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from celery import Celery

from benchmarks.peer import Starts
from benchmarks.peers.redis_peer import BlockingPeer, serve_in_thread

_PREFETCH = 100


class CeleryRedis(BlockingPeer):
    """Celery with its solo pool, which is the fastest for a no-op."""

    name: ClassVar[str] = "Celery"
    settings: ClassVar[str] = (
        f"solo pool, prefetch {_PREFETCH}, no results, no events; acks before the run"
    )
    left: ClassVar[str] = "return redis.call('LLEN', 'celery') + redis.call('HLEN', 'unacked')"

    def __init__(self, url: str, starts: Starts) -> None:
        self._app: Any = Celery("race", broker=url)
        self._app.conf.update(
            worker_prefetch_multiplier=_PREFETCH,
            worker_hijack_root_logger=False,
            task_ignore_result=True,
            broker_connection_retry_on_startup=True,
        )
        note = starts.note_in_thread

        def noop() -> None:
            note(time.monotonic_ns())

        def stamped(sent: int) -> None:
            note(time.monotonic_ns() - sent)

        self._noop = self._app.task(name="noop")(noop)
        self._stamped = self._app.task(name="stamped")(stamped)

    async def open(self) -> None:
        """Connect, and keep the producer: asking the pool for each job costs more."""
        self._producer = self._app.amqp.Producer(self._app.connection_for_write())

    def enqueue_blocking(self) -> None:
        """Enqueue one no-op, and return when Redis has it."""
        self._noop.apply_async(producer=self._producer)

    async def enqueue_bulk(self, count: int, *, kind: str, priority: int) -> None:
        """Enqueue many no-ops. A group is a loop of single enqueues, and it has no other way."""
        del kind, priority
        for _ in range(count):
            self._noop.apply_async(producer=self._producer)

    async def enqueue_stamped(self) -> None:
        """Enqueue one job that carries the moment just before this call."""
        self._stamped.apply_async((time.monotonic_ns(),), producer=self._producer)

    async def work(self, slots: int | None, *, idle: bool) -> None:
        """Serve as a worker until cancelled."""
        del slots, idle
        worker = self._app.WorkController(
            pool_cls="solo",
            concurrency=1,
            without_heartbeat=True,
            without_mingle=True,
            without_gossip=True,
        )
        await serve_in_thread(worker.start, worker.stop)
