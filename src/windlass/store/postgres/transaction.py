"""Owns the transaction in which a handler does its own SQL and completes its job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, ExitStack
from types import TracebackType

from windlass.core.errors import Fenced
from windlass.core.settle import Transition
from windlass.store.postgres.pool import AsyncPool, Pool
from windlass.store.postgres.rows import complete_values
from windlass.store.postgres.wire import AsyncWire, Row, Wire, translated

_PATIENCE = 30.0


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
        self._stack = ExitStack()
        self._wire = self._stack.enter_context(self._pool.connection(_PATIENCE))
        self._wire.deadline = None  # What the user does may take as long as the job may.
        self._stack.enter_context(self._wire.transaction())
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
        self._astack = AsyncExitStack()
        pool = self._async_pool()
        self._awire = await self._astack.enter_async_context(pool.connection(_PATIENCE))
        await self._astack.enter_async_context(self._awire.transaction())
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
            row = self._wire.execute(self._statement, values).fetchone()
        self._check(row)

    async def _asettle(self) -> None:
        with translated(self._location):
            values = complete_values([self._settling])
            cursor = await self._awire.execute(self._statement, values)
            row = await cursor.fetchone()
        self._check(row)

    def _check(self, row: Row | None) -> None:
        if row is None or row[0] is not None:
            raise Fenced(self._settling.id)
