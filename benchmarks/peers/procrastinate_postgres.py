"""Owns Procrastinate as a contender, at the best settings that we found for it."""

from __future__ import annotations

import asyncio
import time
from typing import ClassVar

from procrastinate import App, PsycopgConnector

from benchmarks.peer import Starts

_CONCURRENCY = 20
_POOL = 10


class ProcrastinatePostgres:
    """Procrastinate with its own pool; it claims and acknowledges job by job."""

    name: ClassVar[str] = "Procrastinate"
    settings: ClassVar[str] = f"concurrency {_CONCURRENCY}, pool {_POOL}"
    left: ClassVar[str] = """
        SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))
    """
    chunk: ClassVar[int] = 20_000
    new_loop = None

    def __init__(self, url: str, starts: Starts) -> None:
        note = starts.note
        self._app = App(connector=PsycopgConnector(conninfo=url, min_size=_POOL, max_size=_POOL))

        @self._app.task(name="noop")
        async def noop() -> None:
            note(time.monotonic_ns())

        @self._app.task(name="nap")
        async def nap() -> None:
            note(time.monotonic_ns())
            await asyncio.sleep(0.01)

        @self._app.task(name="stamped")
        async def stamped(sent: int) -> None:
            note(time.monotonic_ns() - sent)

        self._noop = noop
        self._stamped = stamped

    async def install(self) -> None:
        """Make the schema."""
        async with self._app.open_async():
            await self._app.schema_manager.apply_schema_async()

    async def open(self) -> None:
        """Open the pool."""
        await self._app.open_async()

    async def enqueue(self) -> None:
        """Enqueue one no-op, and return when it is committed."""
        await self._noop.defer_async()

    async def enqueue_bulk(self, count: int, *, kind: str, priority: int) -> None:
        """Enqueue many jobs in one call."""
        task = self._app.configure_task(kind, priority=priority)
        await task.batch_defer_async(*({} for _ in range(count)))

    async def enqueue_stamped(self) -> None:
        """Enqueue one job that carries the moment just before this call."""
        await self._stamped.defer_async(sent=time.monotonic_ns())

    async def work(self, slots: int | None, *, idle: bool) -> None:
        """Serve as a worker until cancelled."""
        del idle
        await self._app.run_worker_async(
            concurrency=slots or _CONCURRENCY, install_signal_handlers=False
        )

    async def close(self) -> None:
        """Let go of the pool."""
        await self._app.close_async()
