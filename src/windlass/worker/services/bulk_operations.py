"""Owns a worker's part in bulk operations: it carries them on step by step.

There is no leader: a worker takes an operation in hand under the lock of its record, and another
one carries on where a worker died. `core.jobs.bulk` decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple

from windlass.core.changes import Changes
from windlass.core.errors import StoreError
from windlass.core.jobs.bulk import (
    BulkOperation,
    BulkState,
    Step,
    advance,
    fields_of,
    filter_at,
    is_meant,
    is_over,
    paused,
    read_operation,
    record_of,
    released,
    size_of,
    take,
)
from windlass.core.jobs.job import Job
from windlass.core.jobs.moves import Verb
from windlass.core.jobs.states import LIVE
from windlass.core.records import Json
from windlass.core.search.scan import Budget
from windlass.core.values.text import storable
from windlass.observability.logs import get_logger
from windlass.process.service import RousableService
from windlass.store import Store, StoreQueries

log = get_logger("windlass.bulk_operations")
_IDLE_SECONDS = 60.0
_UNREAD_SECONDS = 60.0
"""Seconds for which an operation is left alone that only a later release can read."""
_MAX_ERROR = 500
_STEP_BUDGET = Budget()
"""What a step may look at, so that one for which few jobs match ends, too."""


class _Taken(NamedTuple):
    now: datetime
    operation: BulkOperation | None = None
    is_unread: bool = False


class BulkOperations(RousableService):
    """Carries on bulk operations whose next step is due; the ticker tells which are."""

    name = "bulk_operations"

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store
        self._due: dict[str, None] = {}
        self._in_hand: dict[str, tuple[BulkOperation, datetime]] = {}
        """Operations of which this worker does step after step, and the time of the last one."""
        self._unread: dict[str, float] = {}
        self._loop = asyncio.get_running_loop()
        self._is_stepping = False

    @property
    def is_busy(self) -> bool:
        """Whether an operation has a step that is due."""
        return self._is_stepping or bool(self._due)

    async def forget(self, names: Sequence[str]) -> None:
        """Note the operations whose alarm is due."""
        now = self._loop.time()
        self._due |= dict.fromkeys(name for name in names if self._unread.get(name, 0.0) <= now)
        self.rouse()

    async def round(self) -> None:
        """Do all steps that are due."""
        await self.tick()
        while self._due:
            await self.tick()

    async def stop(self) -> None:
        """Stop after the step under way, and leave the rest to another worker at once."""
        await super().stop()
        for name in self._in_hand:
            await self._change(name, released)

    async def tick(self) -> float:
        """Do one step of each operation that is due."""
        self._roused.clear()
        names, self._due = list(self._due), {}
        self._is_stepping = True
        try:
            for name in names:
                if await self._carry_on(name):
                    self._due[name] = None
        finally:
            self._is_stepping = False
        return 0 if self._due else _IDLE_SECONDS

    async def _carry_on(self, name: str) -> bool:
        """Do one step of an operation; return whether the next one is due at once, and ours."""
        in_hand = self._in_hand.pop(name, None) or await self._take(name)
        if in_hand is None:
            return False
        operation, now = in_hand
        try:
            step = await self._find(operation, now)
            after, now = await self._move(name, operation, step)
        except StoreError:
            raise  # Another worker, or this one, takes it in hand again after a while.
        except Exception as error:
            log.exception("bulk.failed", **fields_of(operation))
            # Paused, so that an operator sees why it does not go on.
            why = storable(f"{type(error).__name__}: {error}", _MAX_ERROR)
            await self._change(name, partial(paused, error=why))
            return False
        if after is None:
            return False
        if after.state is BulkState.COMPLETED:
            log.info("bulk.completed", **fields_of(after))
        if after.held_until is None:
            return False
        self._in_hand[name] = after, now
        return True

    async def _take(self, name: str) -> tuple[BulkOperation, datetime] | None:
        """Take an operation in hand, unless another worker has; delete one that is long over."""

        def decide(known: Mapping[str, Json], now: datetime) -> Changes[_Taken]:
            record = known.get(name)
            if is_over(record, now):
                return Changes(answer=_Taken(now), records={name: None})
            taken = take(record, now)
            if taken is None:
                is_unread = record is not None and read_operation(record) is None
                return Changes(answer=_Taken(now, is_unread=is_unread))
            return Changes(
                answer=_Taken(now, taken),
                records={name: record_of(taken)},
                alarms={name: taken.alarm},
            )

        taken = (await self._store.apply([name], decide)).answer
        if taken.is_unread:
            self._leave(name)
        return None if taken.operation is None else (taken.operation, taken.now)

    def _leave(self, name: str) -> None:
        if name not in self._unread:
            why = "its record cannot be read; a later release may have written it"
            log.warning("bulk.unread", bulk=name, why=why)
        self._unread[name] = self._loop.time() + _UNREAD_SECONDS

    async def _find(self, operation: BulkOperation, now: datetime) -> Step:
        page = await self._store.find(
            filter_at(operation, now),
            limit=size_of(operation),
            after=operation.cursor,
            oldest_first=True,
            brief=True,
            budget=_STEP_BUDGET,
        )
        meant = [job for job in page.jobs if is_meant(operation, job)]
        jobs = await purgeable(self._store, meant) if operation.verb is Verb.PURGE else meant
        return Step(
            after=operation.cursor,
            jobs=[job.id for job in jobs],
            seen=len(meant),
            # If the budget ended the page, it continues after jobs that do not match.
            cursor=page.after,
            is_last=page.after is None,
        )

    async def _move(
        self, name: str, operation: BulkOperation, step: Step
    ) -> tuple[BulkOperation | None, datetime]:
        def decide(
            known: Mapping[str, Json], now: datetime
        ) -> Changes[tuple[BulkOperation | None, datetime]]:
            changes = advance(name, step, known, now, is_leaving=self._stopping.is_set())
            return Changes(
                answer=(changes.answer, now),
                moves=changes.moves,
                move_counts=changes.move_counts,
                alarms=changes.alarms,
            )

        names = [name] if operation.entry is None else [operation.entry, name]
        return (await self._store.apply(names, decide)).answer

    async def _change(
        self, name: str, change: Callable[[BulkOperation, datetime], BulkOperation]
    ) -> None:
        def decide(known: Mapping[str, Json], now: datetime) -> Changes[None]:
            operation = read_operation(known.get(name))
            if operation is None:
                return Changes(answer=None)
            after = change(operation, now)
            return Changes(
                answer=None, records={name: record_of(after)}, alarms={name: after.alarm}
            )

        await self._store.apply([name], decide)


async def purgeable(store: StoreQueries, jobs: Sequence[Job]) -> list[Job]:
    """Leave out jobs of flows that are under way: others may need their results."""
    flows = {job.flow for job in jobs if job.flow not in (None, job.id)}
    known = await store.get_many(list(flows)) if flows else {}
    under_way = {flow.id for flow in known.values() if flow.state in LIVE}
    return [job for job in jobs if job.flow not in under_way]
