"""Owns PgQueuer as a contender, at the best settings that we found for it."""

from __future__ import annotations

import asyncio
import time
from typing import ClassVar

import asyncpg
import uvloop
from pgqueuer import AsyncpgDriver, AsyncpgPoolDriver, Job, Queries, QueueManager

from benchmarks.peer import Starts

_BATCH = 500
_POOL = 5


class PgQueuerPostgres:
    """PgQueuer on asyncpg and uvloop.

    A pool lets it claim while it acknowledges, and drains faster by a tenth or two; one connection
    answers sooner. Greater batches than this gain nothing.
    """

    name: ClassVar[str] = "PgQueuer"
    settings: ClassVar[str] = (
        f"asyncpg, uvloop, batch_size {_BATCH}, optimize_autovacuum, a pool of {_POOL}; "
        "one connection for the latency"
    )
    left: ClassVar[str] = "SELECT EXISTS (SELECT FROM pgqueuer)"
    chunk: ClassVar[int] = 5_000
    new_loop = staticmethod(uvloop.new_event_loop)

    def __init__(self, url: str, starts: Starts) -> None:
        self._url = url
        self._starts = starts

    async def install(self) -> None:
        """Make the schema, and set autovacuum as PgQueuer advises."""
        await self.open()
        await self._queries.install()
        await self._queries.optimize_autovacuum()
        await self.close()

    async def open(self) -> None:
        """Connect."""
        self._connection = await asyncpg.connect(self._url)
        self._queries = Queries(AsyncpgDriver(self._connection))

    async def enqueue(self) -> None:
        """Enqueue one no-op, and return when it is committed."""
        await self._queries.enqueue("noop", None)

    async def enqueue_bulk(self, count: int, *, kind: str, priority: int) -> None:
        """Enqueue many jobs in one call."""
        await self._queries.enqueue([kind] * count, [None] * count, [priority] * count)

    async def enqueue_stamped(self) -> None:
        """Enqueue one job that carries the moment just before this call."""
        await self._queries.enqueue("stamped", str(time.monotonic_ns()).encode())

    async def work(self, slots: int | None, *, idle: bool) -> None:
        """Serve as a worker until cancelled. It has no slots, but runs all that it claims."""
        del slots
        if idle:
            await self._manager(self._queries).run(batch_size=_BATCH)
            return
        async with asyncpg.create_pool(self._url, min_size=_POOL, max_size=_POOL) as pool:
            await self._manager(Queries(AsyncpgPoolDriver(pool))).run(batch_size=_BATCH)

    def _manager(self, queries: Queries) -> QueueManager:
        manager = QueueManager(queries)
        note = self._starts.note

        @manager.entrypoint("noop")
        async def noop(_job: Job) -> None:
            note(time.monotonic_ns())

        @manager.entrypoint("nap")
        async def nap(_job: Job) -> None:
            note(time.monotonic_ns())
            await asyncio.sleep(0.01)

        @manager.entrypoint("stamped")
        async def stamped(job: Job) -> None:
            note(time.monotonic_ns() - int(job.payload or b""))

        return manager

    async def close(self) -> None:
        """Let go of the connection."""
        await self._connection.close()
