"""Owns the transaction in which a handler does its own SQL and completes its job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, ExitStack
from types import TracebackType

import psycopg
from psycopg import AsyncCursor, Cursor
from psycopg.rows import tuple_row

from windlass.core.errors import Fenced
from windlass.core.settle import Transition
from windlass.store.postgres.pool import AsyncPool, Pool
from windlass.store.postgres.rows import complete_values
from windlass.store.postgres.wire import AsyncWire, Row, Wire, translated

_PATIENCE = 30.0
_RESET = "RESET ALL; RESET ROLE; UNLISTEN *; SELECT pg_advisory_unlock_all(); DISCARD TEMP"


class Transaction:
    """`async with` in a coroutine, `with` in a thread: gives a connection in a transaction.

    The last statement before the commit settles the job under its fence. If the fence is gone,
    nothing is committed. Nothing of the job is locked before that.
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

    def __enter__(self) -> Wire:
        with ExitStack() as stack, translated(self._location):
            self._wire = stack.enter_context(self._pool.connection(_PATIENCE))
            self._wire.deadline = None  # What the user does may take as long as the job may.
            stack.callback(_clean, self._wire)
            stack.enter_context(self._wire.transaction())
            self._stack = stack.pop_all()
        return self._wire

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

    async def __aenter__(self) -> AsyncWire:
        pool = self._async_pool()
        async with AsyncExitStack() as stack:
            with translated(self._location):
                self._awire = await stack.enter_async_context(pool.connection(_PATIENCE))
                stack.push_async_callback(_aclean, self._awire)
                await stack.enter_async_context(self._awire.transaction())
            self._astack = stack.pop_all()
        return self._awire

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
            values = complete_values([self._settling])
            cursor = Cursor(self._wire, row_factory=tuple_row)
            row = cursor.execute(self._statement, values).fetchone()
        self._check(row)

    async def _asettle(self) -> None:
        with translated(self._location):
            values = complete_values([self._settling])
            cursor = AsyncCursor(self._awire, row_factory=tuple_row)
            await cursor.execute(self._statement, values)
            row = await cursor.fetchone()
        self._check(row)

    def _check(self, row: Row | None) -> None:
        if row is None or row[0] is not None:
            raise Fenced(self._settling.id)


def _clean(wire: Wire) -> None:
    """Let whoever borrows the connection next find it as if it were new."""
    wire.row_factory, wire.cursor_factory = tuple_row, Cursor
    try:
        wire.execute(_RESET)
    except psycopg.Error:
        wire.pgconn.finish()  # What was done is committed, and what is left of this is not used.


async def _aclean(wire: AsyncWire) -> None:
    """Do the same to a connection that is awaited."""
    wire.row_factory, wire.cursor_factory = tuple_row, AsyncCursor
    try:
        await wire.execute(_RESET)
    except psycopg.Error:
        wire.pgconn.finish()
