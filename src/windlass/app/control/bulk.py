"""Owns moves of many jobs at once: they are found first, then moved in chunks.

Exactly the jobs that were found are moved: later ones are left alone, and so are those that have
changed their state since.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Unpack
from uuid import UUID

from msgspec.structs import replace

from windlass.app.control.audit_writer import log_action
from windlass.app.control.part import ControlPart
from windlass.app.loop_thread import blocking
from windlass.core.audit import Note
from windlass.core.changes import Changes
from windlass.core.errors import AmbiguousId, UnknownJob
from windlass.core.jobs.ids import ending_of, first_id, read_id
from windlass.core.jobs.job import Job
from windlass.core.jobs.moves import REASONS, Move, Verb
from windlass.core.jobs.queries import (
    JobFilter,
    Page,
    Where,
    described,
    filter_for,
    filter_of,
    needs_clock,
    term_of_queues,
)
from windlass.core.jobs.states import State
from windlass.core.search.parser import parse
from windlass.core.search.scan import Budget
from windlass.core.values.text import storable
from windlass.core.workflows.flow_graph import topic_of
from windlass.store import StoreQueries, stores_of_jobs
from windlass.worker.services.bulk_operations import purgeable
from windlass.worker.services.flow_advancer import FlowAdvancer

CHUNK = 500
"""How many jobs are found, or moved, in one transaction."""
_REASON_LIMIT = 500
_PAYLOAD_CHANGED = "payload changed by an operator"
_RECENT = timedelta(days=1)
_BOUNDED = Budget()


class BulkControl(ControlPart):
    """The methods of `app.control` for jobs that are selected by conditions."""

    async def afind(
        self,
        *,
        limit: int = 100,
        after: UUID | None = None,
        budget: Budget | None = _BOUNDED,
        **where: Unpack[Where],
    ) -> Page:
        """Return the newest jobs that meet all conditions; `after` continues a page.

        It looks at no more jobs than its budget allows, by default 100,000 and for a second. If
        that ended it before the page was full, `searched_to` of the page says how far it came.

        Raises:
            TypeError: a condition is none, or has the wrong type.
            ValueError: there is no such state, or a duration is none.
            SearchError: the search cannot be read; its `position` is the place of the mistake.
        """
        return await find_page(self._app.store, where, limit=limit, after=after, budget=budget)

    find = blocking(afind)

    async def acount(self, *, limit: int | None = None, **where: Unpack[Where]) -> int:
        """Count such jobs, up to a limit. It reads each of them."""
        store = self._app.store
        return len(await search(store, filter_of(where, await store_now(store, where)), limit))

    count = blocking(acount)

    async def ajob_id(
        self, text: str, *, kind: str | None = None, queues: Collection[str] | None = None
    ) -> UUID:
        """Return the id of the only job with this prefix, of a kind or of queues if they are given.

        Without one, it is the only one of the last day whose id ends like this, as log lines at a
        terminal show it: eight digits or more. A whole id is returned as it is, whether there is
        such a job or not.

        Raises:
            ValueError: it cannot be the beginning of an id, or is too short.
            UnknownJob: no job has such an id.
            AmbiguousId: several have.
        """
        first, last = read_id(str(text))
        if first == last:
            return first
        which = JobFilter(kind=kind, terms=() if queues is None else (term_of_queues(queues),))
        page = await _with_id(self._app.store, which, str(text), limit=AmbiguousId.LISTED + 1)
        jobs = page.jobs
        if not jobs:
            raise UnknownJob(text)
        if len(jobs) > 1:
            raise AmbiguousId(text, tuple(f"{job.id} ({job.kind}, {job.state})" for job in jobs))
        return jobs[0].id

    job_id = blocking(ajob_id)

    async def acancel_many(
        self, job_ids: Iterable[UUID], *, reason: str | None = None
    ) -> list[Job]:
        """Cancel waiting jobs, and ask running ones to end; return those that did either.

        The id of a flow stands for all of its jobs.
        """
        return await self._move(Verb.CANCEL, _listed(job_ids), reason)

    cancel_many = blocking(acancel_many)

    async def aredrive(self, job_ids: Iterable[UUID], *, reason: str | None = None) -> list[Job]:
        """Give dead jobs a new life; return those that were dead."""
        return await self._move(Verb.REDRIVE, _listed(job_ids), reason)

    redrive = blocking(aredrive)

    async def apurge(self, job_ids: Iterable[UUID]) -> list[Job]:
        """Delete jobs that have ended; return those that had."""
        return await self._move(Verb.PURGE, _listed(job_ids))

    purge = blocking(apurge)

    async def acancel_where(
        self, *, limit: int | None = None, reason: str | None = None, **where: Unpack[Where]
    ) -> int:
        """Cancel all such jobs that wait, ask those that run to end, and return their number.

        Raises:
            TypeError: a condition is none, or has the wrong type.
            ValueError: there is no condition, or it names a state that cannot be cancelled.
        """
        return await self._move_where(Verb.CANCEL, where, limit, reason)

    cancel_where = blocking(acancel_where)

    async def aredrive_where(
        self, *, limit: int | None = None, reason: str | None = None, **where: Unpack[Where]
    ) -> int:
        """Give all such dead jobs a new life, and return their number."""
        return await self._move_where(Verb.REDRIVE, where, limit, reason)

    redrive_where = blocking(aredrive_where)

    async def apurge_where(self, *, limit: int | None = None, **where: Unpack[Where]) -> int:
        """Delete all such jobs that have ended, and return their number.

        Jobs of a flow that is under way are kept: others may need their results.
        """
        return await self._move_where(Verb.PURGE, where, limit)

    purge_where = blocking(apurge_where)

    async def _move_where(
        self, verb: Verb, where: Where, limit: int | None, reason: str | None = None
    ) -> int:
        which = filter_for(verb, where, await store_now(self._app.store, where))
        found = await search(self._app.store, which, limit)
        moving = move_in_chunks(self, verb, found, which=which, reason=reason)
        return sum([moved async for _, moved in moving])

    async def _move(
        self,
        verb: Verb,
        job_ids: Sequence[UUID],
        reason: str | None = None,
        payload: bytes | None = None,
    ) -> list[Job]:
        for each in job_ids:
            check_job_id(each)
        detail = "" if payload is None else "with another payload"
        note = self._note(verb, _subject(job_ids), detail=detail, reason=reason, jobs=job_ids)
        moved = await self._move_with(note, verb, job_ids, payload)
        log_action(note)
        return moved

    async def _move_with(
        self, note: Note, verb: Verb, job_ids: Sequence[UUID], payload: bytes | None = None
    ) -> list[Job]:
        default = REASONS[verb] if payload is None else _PAYLOAD_CHANGED
        said = storable(note.reason or self.actor.reason or default, _REASON_LIMIT)
        moved: dict[UUID, Job] = {}
        for store, own in (await stores_of_jobs(self._app.store, job_ids)).items():
            moves = [Move(verb=verb, id=job_id, reason=said, payload=payload) for job_id in own]
            changes: Changes[None] = Changes(answer=None, moves=moves)
            applied = await self._apply(note, [], lambda _, __, part=changes: part, store)  # type: ignore[misc]
            jobs = [job for job in applied.moved if job is not None]
            moved |= {job.id: job for job in jobs}
            flows = [topic_of(job.id) for job in jobs if job.flow == job.id]
            if flows and verb is Verb.CANCEL:
                # A worker would do it, too, but later, and only if there is one.
                await FlowAdvancer(store).hear(flows)
        return [moved[job_id] for job_id in dict.fromkeys(job_ids) if job_id in moved]


async def move_in_chunks(
    control: BulkControl,
    verb: Verb,
    job_ids: Sequence[UUID],
    *,
    which: JobFilter,
    reason: str | None = None,
    size: int = CHUNK,
    by_id: bool = False,
) -> AsyncGenerator[tuple[int, int], None]:
    """Cancel, redrive or purge jobs in chunks; yield, of each, its size and how many moved.

    Jobs that are no longer in one of the states of the filter are left alone. The audit log has one
    entry for all of them: with the filter, or with the ids of jobs that were selected `by_id`.
    """
    if by_id:
        note = control._note(verb, _subject(job_ids), jobs=job_ids, reason=reason)
    else:
        note = control._note(verb, "jobs", detail=described(which), reason=reason)
    try:
        for start in range(0, len(job_ids), size):
            chunk = job_ids[start : start + size]
            meant = await _still_meant(control._app.store, verb, chunk, which.states)
            yield len(chunk), len(await control._move_with(note, verb, meant))
    finally:
        log_action(note)


async def _still_meant(
    store: StoreQueries, verb: Verb, job_ids: Sequence[UUID], states: Collection[State]
) -> list[UUID]:
    jobs = await store.get_many(job_ids)
    found = [jobs[job_id] for job_id in job_ids if job_id in jobs]
    meant = [job for job in found if job.state in states]
    if verb is Verb.PURGE:
        meant = await purgeable(store, meant)
    return [job.id for job in meant]


def _subject(job_ids: Sequence[UUID]) -> str:
    return f"job:{job_ids[0]}" if len(job_ids) == 1 else "jobs"


def _listed(job_ids: Iterable[UUID]) -> list[UUID]:
    if isinstance(job_ids, str | UUID) or not isinstance(job_ids, Iterable):
        raise TypeError(f"job_ids must be an iterable of UUIDs, got {job_ids!r}; write [...]")
    return list(job_ids)


async def find_page(
    store: StoreQueries,
    where: Where,
    *,
    limit: int,
    after: UUID | None,
    budget: Budget | None,
    brief: bool = False,
) -> Page:
    """Return a page of jobs that meet conditions; a search for an id goes straight to its job."""
    which = filter_of(where, await store_now(store, where))
    lone_id = parse(where.get("search") or "").job_id
    if lone_id is not None and after is None:
        page = await _with_id(store, replace(which, terms=()), lone_id, limit=limit, brief=brief)
        if page.jobs:
            return page
    return await store.find(which, limit=limit, after=after, budget=budget, brief=brief)


async def _with_id(
    store: StoreQueries, which: JobFilter, text: str, *, limit: int, brief: bool = False
) -> Page:
    """Return jobs whose ids begin with a text; if none does, those of a day that end with it."""
    first, last = read_id(text)
    page = await store.find(replace(which, first=first, last=last), limit=limit, brief=brief)
    if not page.jobs and (ending := ending_of(text)) is not None:
        # No index covers the ends of ids, so only those of a day are read.
        since = first_id(datetime.now(UTC) - _RECENT)
        recent = replace(which, first=since, ending=ending)
        return await store.find(recent, limit=limit, brief=brief)
    return page


async def store_now(store: StoreQueries, where: Where) -> datetime | None:
    """Return the store's time, if conditions depend on it."""
    return (await store.sweep()).now if needs_clock(where) else None


async def search(store: StoreQueries, which: JobFilter, limit: int | None = None) -> list[UUID]:
    """Return the ids of all jobs that match a filter, the oldest first."""
    found: list[UUID] = []
    after: UUID | None = None
    while limit is None or len(found) < limit:
        room = CHUNK if limit is None else min(CHUNK, limit - len(found))
        page = await store.find(
            which, limit=room, after=after, oldest_first=True, brief=True, budget=_BOUNDED
        )
        found += [job.id for job in page.jobs]
        after = page.after
        if after is None:
            break
    return found


def check_job_id(job_id: object) -> None:
    """Reject values that are no job's id.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(job_id, UUID):
        raise TypeError(
            f"job_id must be a UUID, got {job_id!r}; use handle.id, or app.control.job_id() to "
            "find one by its prefix"
        )
