"""Owns how jobs, counts and workers are looked at, for people; nothing here changes anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from windlass.core.job import (
    AGING,
    Depths,
    ErrorGroup,
    Job,
    JobFilter,
    Page,
    QueueCount,
    Standing,
    first_id,
)
from windlass.core.states import State
from windlass.store.depths import QUEUES, depths_of
from windlass.store.postgres.rows import group_of, instant, job_of
from windlass.store.postgres.work import Cursor, Statements, fetch


async def get(cursor: Cursor, sql: Statements, job: UUID) -> Job | None:
    """Return a job, wherever it is."""
    values = {"id": job}
    for room in ("get_live", "get_finished", "get_live"):
        # Looked for twice in the first room: it may have moved back between two looks.
        for row in await fetch(cursor, sql[room], values):
            return job_of(row)
    return None


async def get_many(cursor: Cursor, sql: Statements, jobs: Sequence[UUID]) -> dict[UUID, Job]:
    """Return those of some jobs that exist, wherever they are."""
    found = [job_of(row) for row in await fetch(cursor, sql["get_many"], {"ids": list(jobs)})]
    return {job.id: job for job in found}


async def find(
    cursor: Cursor, sql: Statements, which: JobFilter, limit: int, after: UUID | None
) -> Page:
    """Return a page of the jobs that a filter lets through."""
    limit = max(limit, 1)
    values = {
        "after": after,
        "states": [state.value for state in which.states] or None,
        "kind": which.kind,
        "queue": which.queue,
        "worker": which.worker,
        "fingerprint": which.fingerprint,
        "limit": limit + 1,
    }
    jobs = tuple(job_of(row) for row in await fetch(cursor, sql["find"], values))
    more = len(jobs) > limit
    return Page(jobs=jobs[:limit], after=jobs[limit - 1].id if more else None)


async def error_groups(
    cursor: Cursor, sql: Statements, kind: str | None, limit: int
) -> list[ErrorGroup]:
    """Return what dead jobs died of, the commonest first."""
    values = {"kind": kind, "limit": max(limit, 1)}
    return [group_of(row) for row in await fetch(cursor, sql["error_groups"], values)]


async def counts(cursor: Cursor, sql: Statements) -> list[QueueCount]:
    """Count the jobs of each queue in each state."""
    return [
        QueueCount(
            queue=queue,
            state=State(state),
            count=count,
            oldest=None if oldest is None else instant(oldest),
        )
        for queue, state, count, oldest in await fetch(cursor, sql["count_jobs"])
    ]


async def standing(cursor: Cursor, sql: Statements, job: UUID, limit: int) -> Standing:
    """Count what is before a job in its queue."""
    found = Standing()
    values = {"id": job, "limit": limit, "span": found.span, "step": AGING}
    for ahead, ended in await fetch(cursor, sql["standing"], values):
        found = Standing(ahead=ahead, ended=ended)
    return found


async def depths(cursor: Cursor, sql: Statements, most: int) -> Depths:
    """Count what is not finished, as far as that takes no longer than it may."""
    values = {"most": most, "queues": QUEUES}
    async with cursor.connection.transaction():
        await fetch(cursor, sql["by_index_only"])
        rows = await fetch(cursor, sql["depths"], values)
    ((age,),) = await fetch(cursor, sql["snapshot_age"])
    counts = ((queue, State(state), count) for queue, state, count in rows)
    return depths_of(counts, most, snapshot_age=age)


async def arrivals(
    cursor: Cursor, sql: Statements, since: datetime, until: datetime, most: int
) -> Mapping[str, int] | None:
    """Count what was made between two moments; None if that is too much."""
    values = {"since": first_id(since), "until": first_id(until), "most": most}
    async with cursor.connection.transaction():
        await fetch(cursor, sql["by_index_only"])
        counted: dict[str, int] = dict(await fetch(cursor, sql["arrivals"], values))
    return counted if sum(counted.values()) <= most else None
