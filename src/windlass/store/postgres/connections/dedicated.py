"""Owns connections that an event loop keeps for one purpose: they reconnect, and have a timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import psycopg

from windlass.core.errors import StoreBusy, StoreUnavailable
from windlass.store.postgres.connections.connection import LoopConnection, adapt, retried
from windlass.store.postgres.connections.server_errors import TRANSIENT, translated

T = TypeVar("T")
TIMEOUT_SECONDS = 15.0
"""Seconds after which a connection that does not answer counts as lost."""
CursorWork = Callable[[psycopg.AsyncCursor[Any]], Awaitable[T]]
ConnectionWork = Callable[[LoopConnection], Awaitable[T]]


class DedicatedConnection:
    """One connection for one piece of work at a time, opened when needed and again when lost."""

    def __init__(self, conninfo: str, location: str) -> None:
        self._conninfo = conninfo
        self._location = location
        self._connection: LoopConnection | None = None
        self._lock = asyncio.Lock()

    async def run(self, work: CursorWork[T], *, timeout: float = TIMEOUT_SECONDS) -> T:
        """Do work with a cursor; deadlocks and the like are retried.

        Raises: StoreUnavailable: the server is unreachable, or does not answer.
        """
        return await self._run(lambda connection: work(connection.cursor(binary=True)), timeout)

    def close(self) -> None:
        """Close the connection; the next piece of work opens a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.pgconn.finish()

    async def _run(self, work: ConnectionWork[T], timeout: float = TIMEOUT_SECONDS) -> T:
        return await retried(lambda: self._attempt(work, timeout))

    async def _attempt(self, work: ConnectionWork[T], timeout: float) -> T:
        try:
            async with asyncio.timeout(timeout), self._lock:
                return await self._work_alone(work)
        except TimeoutError as late:
            raise StoreUnavailable(f"{self._location} did not answer in {timeout:g} s") from late

    async def _work_alone(self, work: ConnectionWork[T]) -> T:
        connection = await self._connected()
        try:
            with translated(self._location):
                return await work(connection)
        except StoreUnavailable as error:
            if not isinstance(error, StoreBusy) and not isinstance(error.__cause__, TRANSIENT):
                self.close()
            raise
        except asyncio.CancelledError:
            self.close()
            raise

    async def _connected(self) -> LoopConnection:
        if self._connection is None or self._connection.closed:
            with translated(self._location):
                self._connection = await LoopConnection.open(self._conninfo)
            adapt(self._connection)
        return self._connection
