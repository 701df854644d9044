"""Owns the transaction in which a handler does its own SQL and completes its job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, ExitStack
from types import TracebackType

import psycopg
from psycopg import AsyncCursor, Cursor
from psycopg.adapt import AdaptersMap
from psycopg.rows import tuple_row

from windlass.core.errors import LeaseLost
from windlass.core.jobs.settle import Transition
from windlass.store.postgres.connections.connection import BlockingConnection, LoopConnection, Row
from windlass.store.postgres.connections.pool import AsyncPool, Pool
from windlass.store.postgres.connections.server_errors import translated
from windlass.store.postgres.parameters import single_values

_TIMEOUT_SECONDS = 30.0
_RESET = "RESET ALL; RESET ROLE; UNLISTEN *; SELECT pg_advisory_unlock_all(); DISCARD TEMP"


class Transaction:
    """Gives a connection in a transaction: `async with` in a coroutine, `with` in a thread.

    The last statement before the commit settles the job under its fence. If the lease was lost,
    nothing is committed. The job's row is not locked before that.
    """

    def __init__(
        self,
        pool: Pool,
        async_pool: Callable[[], AsyncPool],
        statements: Mapping[str, str],
        settling: Transition,
        *,
        location: str,
    ) -> None:
        self._pool = pool
        self._async_pool = async_pool
        self._statement = statements["complete"]
        self._settling = settling
        self._location = location

    def __enter__(self) -> BlockingConnection:
        with ExitStack() as stack, translated(self._location):
            self._connection = stack.enter_context(self._pool.connection(_TIMEOUT_SECONDS))
            # The user's work may take as long as the job's timeout allows.
            self._connection.deadline = None
            self._connection.lent_adapters = AdaptersMap(psycopg.adapters)
            stack.callback(_clean, self._connection)
            stack.enter_context(self._connection.transaction())
            self._stack = stack.pop_all()
        return self._connection

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._settle()
        except BaseException as refused:
            self._stack.__exit__(type(refused), refused, refused.__traceback__)
            raise
        with translated(self._location):
            self._stack.__exit__(kind, error, trace)

    async def __aenter__(self) -> LoopConnection:
        pool = self._async_pool()
        async with AsyncExitStack() as stack:
            with translated(self._location):
                self._async_connection = await stack.enter_async_context(
                    pool.connection(_TIMEOUT_SECONDS)
                )
                self._async_connection.lent_adapters = AdaptersMap(psycopg.adapters)
                stack.push_async_callback(_aclean, self._async_connection)
                await stack.enter_async_context(self._async_connection.transaction())
            self._astack = stack.pop_all()
        return self._async_connection

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                await self._asettle()
        except BaseException as refused:
            await self._astack.__aexit__(type(refused), refused, refused.__traceback__)
            raise
        with translated(self._location):
            await self._astack.__aexit__(kind, error, trace)

    def _settle(self) -> None:
        with translated(self._location):
            values = single_values(self._settling)
            cursor = Cursor(self._connection, row_factory=tuple_row)
            row = cursor.execute(self._statement, values).fetchone()
        self._check(row)

    async def _asettle(self) -> None:
        with translated(self._location):
            values = single_values(self._settling)
            cursor = AsyncCursor(self._async_connection, row_factory=tuple_row)
            await cursor.execute(self._statement, values)
            row = await cursor.fetchone()
        self._check(row)

    def _check(self, row: Row | None) -> None:
        if row is None or row[0] is not None:
            raise LeaseLost(self._settling.id)


def _clean(connection: BlockingConnection) -> None:
    connection.row_factory, connection.cursor_factory = tuple_row, Cursor
    connection.lent_adapters = None
    try:
        connection.execute(_RESET)
    except psycopg.Error:
        connection.pgconn.finish()  # The transaction is over; the connection is not used again.


async def _aclean(connection: LoopConnection) -> None:
    connection.row_factory, connection.cursor_factory = tuple_row, AsyncCursor
    connection.lent_adapters = None
    try:
        await connection.execute(_RESET)
    except psycopg.Error:
        connection.pgconn.finish()
