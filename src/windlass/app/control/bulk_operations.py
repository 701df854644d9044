"""Owns how bulk operations are started, followed, paused, resumed and stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Literal, Unpack
from uuid import UUID

from windlass.app.control.part import ControlPart
from windlass.app.jobs.searching import store_now
from windlass.app.loop_thread import blocking
from windlass.core.audit import Note
from windlass.core.changes import Changes
from windlass.core.errors import ConfigError
from windlass.core.jobs.bulk import (
    COUNTED,
    RECORD,
    VERBS,
    BulkOperation,
    name_of,
    paused,
    read_operation,
    record_of,
    resumed,
    stopped,
)
from windlass.core.jobs.moves import Verb
from windlass.core.jobs.queries import JobFilter, Where, described, filter_for
from windlass.core.policies.limit import read_rate
from windlass.core.records import Json
from windlass.core.search.scan import Budget
from windlass.store import StoreQueries, store_of_queue

_COUNT_BUDGET = Budget()
BulkVerb = Literal["cancel", "retry", "redrive", "purge"]


class BulkOperationControl(ControlPart):
    """The methods of `app.control` for bulk operations, which workers carry on."""

    async def astart_bulk(
        self,
        verb: BulkVerb,
        *,
        rate: str | None = None,
        limit: int | None = None,
        reason: str | None = None,
        **where: Unpack[Where],
    ) -> BulkOperation:
        """Let workers cancel, retry, redrive or purge all jobs that meet conditions.

        It returns at once; `app.control.bulk(operation.id)` says how far it came. `rate`, like
        "10/s", is how fast jobs are moved at most, `limit` how many. The jobs are those that are
        there now, if they still meet the conditions when a worker comes to them.

        Raises:
            TypeError: a condition is none, or has the wrong type.
            ValueError: there is no such verb, condition, state or rate.
        """
        now = await store_now(self._app.store, where)
        which = filter_for(_checked_verb(verb), where, now)
        pace = None if rate is None else str(read_rate(rate))
        if limit is not None and limit < 1:
            raise ValueError(f"limit must be at least 1, got {limit}")
        return await self._start(Verb(verb), which, rate=pace, limit=limit, reason=reason)

    start_bulk = blocking(astart_bulk)

    async def _start(
        self,
        verb: Verb,
        which: JobFilter,
        *,
        rate: str | None,
        limit: int | None,
        reason: str | None,
    ) -> BulkOperation:
        store = self._app.store
        if which.queue is not None:
            store = store_of_queue(store, which.queue)
        matched, is_capped = await count_some(store, which, limit)
        operation_id = self._app.ids.next()
        name, actor = name_of(operation_id), self.actor
        detail = " ".join(filter(None, [described(which), rate and f"rate={rate}"]))
        note = self._note(verb, name, detail=detail, reason=reason)

        def decide(_known: Mapping[str, Json], now: datetime) -> Changes[BulkOperation]:
            operation = BulkOperation(
                id=operation_id,
                verb=verb,
                which=which,
                limit=limit,
                rate=rate,
                by=actor.by,
                via=actor.via,
                reason=note.reason or actor.reason,
                started_at=now,
                due_at=now,
                matched=matched,
                is_capped=is_capped,
                entry=note.name_at(now, store.location),
            )
            return Changes(
                answer=operation,
                records={name: record_of(operation)},
                alarms={name: operation.alarm},
            )

        return (await self._act(note, [name], decide, store)).answer

    async def abulk(self, operation_id: UUID) -> BulkOperation:
        """Return a bulk operation, and how far it came.

        Raises:
            ConfigError: there is none with this id; they are kept for 30 days.
        """
        name = name_of(operation_id)
        found = read_operation((await self._app.store.records(name)).get(name))
        if found is None:
            raise _unknown(operation_id)
        return found

    bulk = blocking(abulk)

    async def abulks(self) -> list[BulkOperation]:
        """Return the bulk operations of the last 30 days, newest first."""
        records = (await self._app.store.records(RECORD)).values()
        found = [operation for record in records if (operation := read_operation(record))]
        return sorted(found, key=lambda each: (each.started_at, each.id), reverse=True)

    bulks = blocking(abulks)

    async def apause_bulk(self, operation_id: UUID) -> BulkOperation:
        """Pause a bulk operation after the step under way; one that has ended stays as it is.

        Raises:
            ConfigError: there is none with this id.
        """
        return await self._pull("pause", operation_id, paused)

    pause_bulk = blocking(apause_bulk)

    async def aresume_bulk(self, operation_id: UUID) -> BulkOperation:
        """Carry on a bulk operation that is paused; one that has ended stays as it is.

        Raises:
            ConfigError: there is none with this id.
        """
        return await self._pull("resume", operation_id, resumed)

    resume_bulk = blocking(aresume_bulk)

    async def astop_bulk(self, operation_id: UUID) -> BulkOperation:
        """End a bulk operation; the jobs that it has moved stay as they are.

        Raises:
            ConfigError: there is none with this id.
        """
        return await self._pull("stop", operation_id, stopped)

    stop_bulk = blocking(astop_bulk)

    async def _pull(
        self,
        action: str,
        operation_id: UUID,
        change: Callable[[BulkOperation, datetime], BulkOperation],
    ) -> BulkOperation:
        name = name_of(operation_id)
        note: Note = self._note(action, name)

        def decide(known: Mapping[str, Json], now: datetime) -> Changes[BulkOperation]:
            operation = read_operation(known.get(name))
            if operation is None:
                raise _unknown(operation_id)
            after = change(operation, now)
            if after == operation:
                return Changes(answer=operation)
            return Changes(
                answer=after, records={name: record_of(after)}, alarms={name: after.alarm}
            )

        return (await self._act(note, [name], decide)).answer


async def count_some(
    store: StoreQueries, which: JobFilter, limit: int | None = None
) -> tuple[int, bool]:
    """Count the jobs of an operation, for a moment; return whether there may be more."""
    most = COUNTED if limit is None else min(limit, COUNTED)
    page = await store.find(which, limit=most, oldest_first=True, brief=True, budget=_COUNT_BUDGET)
    number = len(page.jobs)
    return number, page.after is not None and number != limit


def _checked_verb(verb: str) -> Verb:
    if verb not in VERBS:
        raise ValueError(f"verb must be one of {', '.join(VERBS)}, got {verb!r}")
    return Verb(verb)


def _unknown(operation_id: UUID) -> ConfigError:
    return ConfigError(
        f"there is no bulk operation {operation_id}; `windlass bulk list` shows those of the last "
        "30 days"
    )
