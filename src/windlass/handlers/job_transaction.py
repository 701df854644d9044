"""Owns `ctx.transaction()`: the user's SQL and the settlement of the job in one transaction."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Any

from windlass.core.errors import CalledFromEventLoop
from windlass.store import Transaction

if TYPE_CHECKING:
    from windlass.handlers.run_state import RunState


class JobTransaction:
    """A transaction that completes the job of a run with its commit."""

    def __init__(self, run: RunState, inner: Transaction) -> None:
        self._run = run
        self._inner = inner

    def __enter__(self) -> Any:
        if asyncio._get_running_loop() is not None:
            raise CalledFromEventLoop("with ctx.transaction()", "async with ctx.transaction()")
        self._run.begin_transaction()
        try:
            return self._inner.__enter__()
        except BaseException:
            self._run.end_transaction(settled=False)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        settled = False
        try:
            if error is None:
                self._flush()
            self._inner.__exit__(kind, error, trace)
            settled = error is None
        finally:
            self._run.end_transaction(settled=settled)

    async def __aenter__(self) -> Any:
        self._run.begin_transaction()
        try:
            return await self._inner.__aenter__()
        except BaseException:
            self._run.end_transaction(settled=False)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        settled = False
        try:
            if error is None:
                await self._aflush()
            await self._inner.__aexit__(kind, error, trace)
            settled = error is None
        finally:
            self._run.end_transaction(settled=settled)

    def _flush(self) -> None:
        """Store what the run has streamed: after the commit it would come too late."""
        try:
            if self._run.stream is not None:
                self._run.stream.flush_blocking()
        except BaseException as lost:
            self._inner.__exit__(type(lost), lost, lost.__traceback__)
            raise

    async def _aflush(self) -> None:
        try:
            await self._run.flush_stream()
        except BaseException as lost:
            await self._inner.__aexit__(type(lost), lost, lost.__traceback__)
            raise
