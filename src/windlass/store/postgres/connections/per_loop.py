"""Owns the connections of each event loop, which no other loop can use."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncCursor

from windlass.core.claims.lanes import Queues
from windlass.core.errors import StoreError, StoreUnavailable
from windlass.core.workers import WorkerInfo
from windlass.store.per_loop import OfOneLoop, PerLoop
from windlass.store.postgres.connections.connection import LoopConnection, adapt, retried
from windlass.store.postgres.connections.dedicated import CursorWork, DedicatedConnection
from windlass.store.postgres.connections.listener import Listener
from windlass.store.postgres.connections.pipeline import Pipeline
from windlass.store.postgres.connections.pool import AsyncPool, PoolSize
from windlass.store.postgres.connections.server_errors import UNKNOWN_STATEMENT, translated
from windlass.store.postgres.lane_cache import LaneCache, LaneCaches

T = TypeVar("T")
_MAX_SWEEP_PAUSE_SECONDS = 2.0
TIMEOUT_SECONDS = 30.0
"""Seconds within which work on a connection of the pool is done or given up."""


class LoopConnections(OfOneLoop):
    """The connections of an event loop, each opened when it is first needed."""

    listener: Listener

    def __init__(
        self,
        conninfo: str,
        listen: str | None,
        location: str,
        limits: PoolSize,
        channel: str,
        *,
        statements: Mapping[str, str],
        served: WorkerInfo | None,
    ) -> None:
        super().__init__()
        self._location = location
        self._sweeping: asyncio.Task[None] | None = None
        self.pipeline = Pipeline(conninfo, location)
        self.chores = DedicatedConnection(conninfo, location)
        self.pool = AsyncPool(conninfo, location, limits)
        self.lanes = LaneCaches()
        self.listener = Listener(
            listen,
            channel,
            chores=self.chores,
            statements=statements,
            served=served,
            lanes=self.lanes,
        )

    async def wait(self, mark: int, timeout: float, queues: Queues) -> None:
        """Return once something may have changed in some queues since a mark, or at the timeout."""
        if self._sweeping is not None and not self._sweeping.done():
            # The sweep may find the jobs that the caller waits for.
            await asyncio.wait({self._sweeping}, timeout=timeout)
            return
        now = time.monotonic()
        due_in = self.lanes.of(queues, now).due_in(now)
        await self.listener.wait(mark, timeout if due_in is None else min(timeout, due_in))

    def sweep_along(self, lanes: LaneCache, sweep: Callable[[], Awaitable[object]]) -> None:
        """Sweep in the background, unless a sweep is under way."""

        async def quietly() -> None:
            try:
                await sweep()
            except StoreError:
                # The next claim meets the same error, and raises it.
                pause = random.uniform(_MAX_SWEEP_PAUSE_SECONDS / 2, _MAX_SWEEP_PAUSE_SECONDS)  # noqa: S311 - spreads load.
                lanes.postpone(time.monotonic() + pause)

        if self._sweeping is None or self._sweeping.done():
            self._sweeping = asyncio.create_task(quietly(), name="windlass-sweep")

    async def run(self, work: CursorWork[T], *, again: bool = True, duty: bool = False) -> T:
        """Do work with a connection of the pool, by a cursor with the store's loaders."""
        return await self.borrow(
            lambda connection: work(_cursor(connection)), again=again, duty=duty
        )

    async def borrow(
        self,
        work: Callable[[LoopConnection], Awaitable[T]],
        *,
        again: bool = False,
        duty: bool = False,
        timeout: float = TIMEOUT_SECONDS,
    ) -> T:
        """Do work with a connection of the pool; deadlocks and the like are retried.

        Work that can be done `again` is repeated on a new connection if an idle one had been lost.
        A worker's `duty` is done even if users hold all connections that they may have.

        Raises: StoreUnavailable: the server is unreachable, or does not answer.
        """
        try:
            return await retried(lambda: self._borrow(work, timeout, duty))
        except StoreUnavailable as error:
            if not again or not isinstance(
                error.__cause__, (psycopg.OperationalError, *UNKNOWN_STATEMENT)
            ):
                raise
            return await retried(lambda: self._borrow(work, timeout, duty))

    async def _borrow(
        self, work: Callable[[LoopConnection], Awaitable[T]], timeout: float, duty: bool
    ) -> T:
        async with self.pool.connection(timeout, duty=duty) as connection:
            try:
                async with asyncio.timeout(timeout):
                    with translated(self._location):
                        return await work(connection)
            except TimeoutError as late:
                reason = f"{self._location} did not answer in {timeout:g} s"
                raise StoreUnavailable(reason) from late

    def close_now(self) -> None:
        """Close every connection at once, without a statement."""
        self.listener.close_now()
        self.pipeline.close()
        self.chores.close()
        self.pool.close()


def _cursor(connection: psycopg.AsyncConnection[Any]) -> AsyncCursor[Any]:
    """Return a cursor with the store's loaders, on a connection that users borrow, too."""
    cursor = connection.cursor(binary=True)
    adapt(cursor)
    return cursor


class ConnectionsPerLoop(PerLoop[LoopConnections]):
    """The connections of every event loop of this process that uses the store."""

    @property
    def pools(self) -> list[AsyncPool]:
        """The pools of all event loops."""
        return [here.pool for here in self.all]
