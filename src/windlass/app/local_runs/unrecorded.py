"""Owns a run that is not recorded: it reads from the store, and writes nothing to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, TypeVar

from windlass.core.changes import Applied, Changes, Decide
from windlass.core.records import Json
from windlass.store import Store, Transaction

T = TypeVar("T")


class UnrecordedStore:
    """A store for one run, which takes events that are there, and does not park the job."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def apply(self, names: Sequence[str], decide: Decide[T]) -> Applied[T]:
        """Decide, and change nothing; a run that would be parked ends all the same."""

        def look(records: Mapping[str, Json], now: datetime) -> Changes[T]:
            return Changes(answer=decide(records, now).answer)

        return await self._store.apply(names, look)


class RolledBack:
    """A transaction that ends with a rollback, however its block ends."""

    def __init__(self, inner: Transaction) -> None:
        self._inner = inner

    def __enter__(self) -> Any:
        return self._inner.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        error = error or _NotRecorded()
        self._inner.__exit__(kind or _NotRecorded, error, trace)

    async def __aenter__(self) -> Any:
        return await self._inner.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        error = error or _NotRecorded()
        await self._inner.__aexit__(kind or _NotRecorded, error, trace)


class _NotRecorded(Exception):
    """Makes a transaction roll back."""
