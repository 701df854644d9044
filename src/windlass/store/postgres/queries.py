"""Owns the queries for jobs, counts and workers; nothing here writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from windlass.core.jobs.ids import first_id
from windlass.core.jobs.job import AGING, Job
from windlass.core.jobs.queries import ErrorGroups
from windlass.core.jobs.states import State
from windlass.core.stats.depths import Depths, QueueCount, Standing
from windlass.store.depth_counts import QUEUES, counts_of, depths_of
from windlass.store.postgres.records import Cursor, Statements, fetch
from windlass.store.postgres.rows import group_of, instant, job_of

_BRISK = {"timeout": "2s"}
_PATIENT = {"timeout": "10s"}
"""How long a statement may take: one that has a substitute, and one that has none."""


async def get(cursor: Cursor, sql: Statements, job: UUID) -> Job | None:
    values = {"id": job}
    for statement in ("get_live", "get_finished", "get_live"):
        # Live jobs are searched twice: the job may have become live again in between.
        for row in await fetch(cursor, sql[statement], values):
            return job_of(row)
    return None


async def get_many(cursor: Cursor, sql: Statements, jobs: Sequence[UUID]) -> dict[UUID, Job]:
    found = [job_of(row) for row in await fetch(cursor, sql["get_many"], {"ids": list(jobs)})]
    return {job.id: job for job in found}


async def error_groups(
    cursor: Cursor, sql: Statements, kind: str | None, limit: int, most: int
) -> ErrorGroups:
    values = {"kind": kind, "limit": max(limit, 1), "most": max(most, 1)}
    async with cursor.connection.transaction():
        await fetch(cursor, sql["by_index_only"], _PATIENT)
        edge = await fetch(cursor, sql["last_grouped"], values)
        rows = await fetch(cursor, sql["error_groups"], values)
    return ErrorGroups(
        groups=tuple(group_of(row) for row in rows),
        searched_to=instant(edge[0][0]) if edge else None,
    )


async def counts(cursor: Cursor, sql: Statements, most: int) -> list[QueueCount]:
    """Count jobs of every state in bounded time."""
    values = {"most": max(most, 1), "queues": QUEUES}
    async with cursor.connection.transaction():
        await fetch(cursor, sql["by_index_only"], _PATIENT)
        rows = await fetch(cursor, sql["depths"], values)
        rows += await fetch(cursor, sql["count_finished"], values)
        waiting = await fetch(cursor, sql["oldest_waiting"], values)
    oldest = {(queue, State(state)): instant(due) for queue, state, due in waiting}
    return counts_of(((queue, State(state), count) for queue, state, count in rows), oldest, most)


async def standing(cursor: Cursor, sql: Statements, job: UUID, limit: int) -> Standing:
    found = Standing()
    values = {"id": job, "limit": limit, "span": found.span, "step": AGING}
    for ahead, ended, span, head in await fetch(cursor, sql["standing"], values):
        found = Standing(ahead=ahead, ended=ended, span=max(span, timedelta(0)), head=head)
    return found


async def depths(cursor: Cursor, sql: Statements, most: int) -> Depths:
    """Count unfinished and dead jobs in bounded time."""
    values = {"most": most, "queues": QUEUES}
    async with cursor.connection.transaction():
        await fetch(cursor, sql["by_index_only"], _BRISK)
        rows = await fetch(cursor, sql["depths"], values)
    ((age,),) = await fetch(cursor, sql["snapshot_age"])
    counts = ((queue, State(state), count) for queue, state, count in rows)
    return depths_of(counts, most, snapshot_age=age)


async def arrivals(
    cursor: Cursor, sql: Statements, since: datetime, until: datetime, most: int
) -> Mapping[str, int] | None:
    """Count the jobs that were created between two instants; None if there are too many."""
    values = {"since": first_id(since), "until": first_id(until), "most": most}
    async with cursor.connection.transaction():
        await fetch(cursor, sql["by_index_only"], _BRISK)
        counted: dict[str, int] = dict(await fetch(cursor, sql["arrivals"], values))
    return counted if sum(counted.values()) <= most else None
