"""Owns moves of many jobs at once: they are found first, then moved in chunks.

Exactly the jobs that were found are moved: later ones are left alone, and so are those that have
changed their state since.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from typing import Unpack
from uuid import UUID

from windlass.app.control.audit_writer import log_action
from windlass.app.control.part import ControlPart
from windlass.app.jobs.searching import CHUNK, search, store_now
from windlass.app.loop_thread import blocking
from windlass.core.audit import Note
from windlass.core.changes import Changes
from windlass.core.jobs.job import Job
from windlass.core.jobs.moves import REASONS, Move, Verb
from windlass.core.jobs.queries import (
    JobFilter,
    Where,
    described,
    filter_for,
)
from windlass.core.jobs.states import State
from windlass.core.values.text import storable
from windlass.core.workflows.flow_graph import topic_of
from windlass.store import StoreQueries, stores_of_jobs
from windlass.worker.services.bulk_operations import purgeable
from windlass.worker.services.flow_advancer import FlowAdvancer

_REASON_LIMIT = 500
_PAYLOAD_CHANGED = "payload changed by an operator"


class BulkControl(ControlPart):
    """The methods of `app.control` for jobs that are selected by conditions."""

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


def check_job_id(job_id: object) -> None:
    """Reject values that are no job's id.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(job_id, UUID):
        raise TypeError(
            f"job_id must be a UUID, got {job_id!r}; use handle.id, or app.jobs.job_id() to "
            "find one by its prefix"
        )
