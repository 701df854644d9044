"""Owns the queries of the SQLite store: operations that read."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from windlass.core.claims.lanes import Head, Queues, Sweep
from windlass.core.jobs.ids import first_id
from windlass.core.jobs.job import AGING, Job, Lane
from windlass.core.jobs.queries import ErrorGroups
from windlass.core.jobs.states import State
from windlass.core.records import Json, RecordPage, Ringing, past
from windlass.core.stats.depths import Depths, QueueCount, Standing
from windlass.core.workers import WorkerRecord
from windlass.store.depth_counts import QUEUES, counts_of, depths_of
from windlass.store.json_columns import as_json
from windlass.store.sql_files import load_statements
from windlass.store.sqlite.repair import readable
from windlass.store.sqlite.rows import group_of, instant, job_of, micros, worker_of

sql = load_statements("windlass.store.sqlite")
_MICROSECOND = timedelta(microseconds=1)


def holds(db: sqlite3.Connection, name: str, values: Mapping[str, Any]) -> bool:
    """Return whether a statement returns a value other than 0."""
    row = db.execute(sql[name], values).fetchone()
    return row is not None and bool(row[0])


def sweep(db: sqlite3.Connection, mark: int, now: datetime, queues: Queues = None) -> Sweep | None:
    """Return the heads of the lanes of some queues; None if the name of one cannot be read."""
    # Before the heads: a job that is promoted between the two reads is seen twice, never missed.
    due = db.execute(sql["next_due"]).fetchone()
    try:
        heads = [
            Head(lane=Lane(queue, kind, priority, key), position=instant(due_at))
            for queue, kind, priority, key, due_at in _walk(db, queues)
        ]
    except sqlite3.OperationalError as error:
        if "decode" in str(error):
            return None
        raise
    next_due = None if due is None else instant(due[0])
    return Sweep(heads=tuple(heads), next_due=next_due, now=now, mark=mark)


def _walk(db: sqlite3.Connection, queues: Queues) -> Iterable[tuple[Any, ...]]:
    if queues is None:
        return db.execute(sql["sweep_heads"])
    return db.execute(sql["sweep_heads_of_queues"], (as_json(sorted(queues)),))


def get(db: sqlite3.Connection, job: UUID) -> Job | None:
    row = db.execute(sql["get_job"], (str(job),)).fetchone()
    return None if row is None else job_of(row)


def get_many(db: sqlite3.Connection, ids: Sequence[UUID]) -> dict[UUID, Job]:
    jobs = [job_of(row) for row in db.execute(sql["get_jobs"], (as_json(ids),))]
    return {job.id: job for job in jobs}


def done(db: sqlite3.Connection, kind: str, key: str) -> Job | None:
    row = db.execute(sql["done_job"], (kind, key)).fetchone()
    return None if row is None else job_of(row)


def error_groups(db: sqlite3.Connection, kind: str | None, limit: int, most: int) -> ErrorGroups:
    values = {"kind": kind, "limit": max(limit, 1), "most": max(most, 1)}
    edge = db.execute(sql["last_grouped"], {"most": max(most, 1)}).fetchone()
    return ErrorGroups(
        groups=tuple(group_of(row) for row in db.execute(sql["error_groups"], values)),
        searched_to=None if edge is None else instant(edge[0]),
    )


def counts(db: sqlite3.Connection, most: int) -> list[QueueCount]:
    """Count jobs of every state in bounded time."""
    values = {"most": max(most, 1)}
    rows = db.execute(sql["depths"], {**values, "queues": QUEUES}).fetchall()
    rows += db.execute(sql["count_finished"], values).fetchall()
    oldest: dict[tuple[str, State], datetime] = {}
    for queue, _, _, _, due in db.execute(sql["sweep_heads"]):
        place, moment = (queue, State.PENDING), instant(due)
        oldest[place] = min(moment, oldest.get(place, moment))
    for queue, due in db.execute(sql["oldest_scheduled"], values):
        oldest[queue, State.SCHEDULED] = instant(due)
    return counts_of(((queue, State(state), count) for queue, state, count in rows), oldest, most)


def standing(db: sqlite3.Connection, job: UUID, limit: int, now: datetime) -> Standing:
    none = Standing()
    values = {
        "id": str(job),
        "limit": limit,
        "since": micros(now - none.span),
        "step": AGING // _MICROSECOND,
    }
    row = db.execute(sql["standing"], values).fetchone()
    if row is None:
        return none
    ahead, ended, since, head = row
    span = max(now - instant(since), timedelta(0))
    first = None if head is None else UUID(head)
    return Standing(ahead=ahead, ended=ended, span=span, head=first)


def depths(db: sqlite3.Connection, most: int) -> Depths:
    """Count unfinished and dead jobs in bounded time."""
    rows = db.execute(sql["depths"], {"most": most, "queues": QUEUES}).fetchall()
    return depths_of(((queue, State(state), count) for queue, state, count in rows), most)


def arrivals(
    db: sqlite3.Connection, since: datetime, until: datetime, most: int
) -> Mapping[str, int] | None:
    """Count by queue the jobs created between two instants; None if there are more than `most`."""
    values = {"since": str(first_id(since)), "until": str(first_id(until)), "most": most}
    counted = dict(db.execute(sql["arrivals"], values).fetchall())
    return counted if sum(counted.values()) <= most else None


def workers(db: sqlite3.Connection, now: datetime) -> list[WorkerRecord]:
    return [worker_of(row) for row in db.execute(sql["list_workers"], {"now": micros(now)})]


def held(db: sqlite3.Connection, worker: str) -> list[Job]:
    """Return the running jobs of a worker, but for unreadable ones: these must not hide others."""
    jobs = readable(db.execute(sql["held_jobs"], (worker,)))
    if jobs is not None:
        return jobs
    seqs = db.execute(sql["held_seqs"], (worker,)).fetchall()
    select = "SELECT * FROM jobs WHERE seq = ?"
    return [job for seq in seqs for job in readable(db.execute(select, seq)) or ()]


def cancel_requests(db: sqlite3.Connection, worker: str) -> list[UUID]:
    return [UUID(row[0]) for row in db.execute(sql["cancel_requests"], (worker,))]


def records(db: sqlite3.Connection, prefix: str, page: RecordPage | None = None) -> dict[str, Json]:
    if page is None:
        rows = db.execute(sql["read_records"], (prefix, past(prefix)))
    else:
        rows = db.execute(sql["read_last_records"], (prefix, page.end(prefix), page.limit))
    return {name: msgspec.json.decode(value) for name, value in rows}


def ringing(db: sqlite3.Connection, limit: int, now: datetime) -> Ringing:
    rows = db.execute(sql["ringing_records"], (micros(now), max(limit, 1))).fetchall()
    names = [row[0] for row in rows]
    upcoming = db.execute(sql["next_alarm"], (as_json(names),)).fetchone()
    return Ringing(
        records={name: msgspec.json.decode(value) for name, value in rows},
        next=None if upcoming is None else instant(upcoming[0]),
        now=now,
    )


def topics(db: sqlite3.Connection, limit: int) -> list[str]:
    return [row[0] for row in db.execute(sql["news_topics"], (max(limit, 1),))]
