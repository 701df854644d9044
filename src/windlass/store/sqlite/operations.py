"""Owns the operations of the SQLite store that write; each runs in a transaction of its caller.

Only `enqueue_alone` may do without one: it is a single statement.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from msgspec.structs import replace

from windlass.core.changes import Applied, Decide, Hear
from windlass.core.claims.lanes import Claim
from windlass.core.errors import LeaseLost
from windlass.core.jobs.job import Checkpoint, Enqueued, Job, Lane, NewJob
from windlass.core.jobs.moves import Move, Verb, moved
from windlass.core.jobs.queries import Retention
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import State
from windlass.core.jobs.unique import amended
from windlass.core.records import News
from windlass.core.schedules.clock_step import AHEAD, SPANS, Places
from windlass.store.json_columns import as_json
from windlass.store.protocol import WORKERS_KEPT
from windlass.store.sql_files import repeat_values
from windlass.store.sqlite import streams
from windlass.store.sqlite.queries import get, holds, sql
from windlass.store.sqlite.repair import bury_unreadable, readable
from windlass.store.sqlite.rows import (
    Row,
    amend_values,
    checkpoint_values,
    instant,
    is_plain,
    job_of,
    micros,
    move_values,
    new_row,
    plain_row,
    settle_values,
)
from windlass.store.sqlite.settle_group import SettleGroup

T = TypeVar("T")
_NEWS_PER_HEARING = 5_000
_MICROSECOND = timedelta(microseconds=1)
_INSERTS = {
    rows: (repeat_values(sql["insert_jobs"], rows), repeat_values(sql["insert_plain_jobs"], rows))
    for rows in (100, 16, 4, 1)
}
"""By numbers of rows, the statements that insert them, and those that insert plain jobs."""


def enqueue(db: sqlite3.Connection, jobs: Sequence[NewJob], now: datetime) -> list[Enqueued]:
    for job in jobs:
        if job.unique is not None:
            return [_insert_one(db, job, now) for job in jobs]
    _insert_all(db, jobs, now)
    return [Enqueued(id=job.id) for job in jobs]


def enqueue_alone(db: sqlite3.Connection, job: NewJob, now: datetime) -> Enqueued:
    """Add a job without a unique key, by a single statement."""
    insert, insert_plain = _INSERTS[1]
    if is_plain(job):
        db.execute(insert_plain, plain_row(job, now, micros(now)))
    else:
        db.execute(insert, new_row(job, now, micros(now)))
    return Enqueued(id=job.id)


def claim(db: sqlite3.Connection, asked: Claim, worker: str, token: int, now: int) -> list[int]:
    """Start jobs under a live lease, ask by ask, within the budgets; return their numbers."""
    if db.execute(sql["worker_is_live"], {"id": worker, "now": now}).fetchone() is None:
        return []
    values: dict[str, Any] = {"worker": worker, "token": token, "now": now}
    budgets = dict(asked.budgets)
    taken: list[int] = []
    emptied: set[Lane] = set()
    for ask in asked.asks:
        count = min((ask.count, *(budgets[name] for name in ask.draws)))
        if count <= 0 or ask.lane in emptied or (ask.ordered and _is_ahead(db, ask.lane, now)):
            continue
        (oldest,) = db.execute(sql["oldest_of_lane"], {**ask.lane._asdict(), "count": count})
        db.execute(sql["claim_jobs"], {**values, "seqs": oldest[0]})
        seqs = msgspec.json.decode(oldest[0])
        if len(seqs) < count:
            emptied.add(ask.lane)
        for name in ask.draws:
            budgets[name] -= len(seqs)
        taken += seqs
    if taken and db.execute(sql["any_unique_key"]).fetchone() is not None:
        db.execute(sql["free_unique_keys_on_claim"], (as_json(taken),))
    return taken


def claimed(db: sqlite3.Connection, seqs: Sequence[int], token: int) -> list[Job] | None:
    """Return jobs that were just claimed, in this order; None if one of them cannot be read."""
    return readable(_in_order(db.execute(sql["claimed_jobs"], (as_json(seqs), token))))


def _in_order(rows: Iterable[Row]) -> Iterator[Row]:
    """Sort rows by the place in front of each, when they are read: one may be unreadable."""
    for row in sorted(rows, key=itemgetter(0)):
        yield row[1:]


def claimed_again(db: sqlite3.Connection, seqs: Sequence[int], token: int, now: int) -> list[Job]:
    """Bury the unreadable ones of claimed jobs, so that they block no others, and return these."""
    bury_unreadable(db, now, "running")
    return [
        job_of(row) for row in _in_order(db.execute(sql["claimed_jobs"], (as_json(seqs), token)))
    ]


def rescue(db: sqlite3.Connection, worker: str, token: int, limit: int, now: int) -> list[Job]:
    """End leases that ran out, and take over the jobs of their workers."""
    if not holds(db, "worker_may_rescue", {"id": worker, "now": now}):
        return []
    db.execute(sql["end_expired_leases"], {"now": now})
    jobs = readable(db.execute(sql["orphaned_jobs"], (limit,)))
    if jobs is None:
        bury_unreadable(db, now, "running")
        jobs = [job_of(row) for row in db.execute(sql["orphaned_jobs"], (limit,))]
    db.executemany(sql["take_over_job"], [(worker, token, str(job.id)) for job in jobs])
    return [replace(job, token=token) for job in jobs]


def apply(
    db: sqlite3.Connection, names: Sequence[str], decide: Decide[T], now: datetime
) -> Applied[T]:
    """Let a reducer decide, and apply its changes; if a fence was lost, the caller's savepoint
    undoes them.
    """
    known = {}
    for name in names:
        if (row := db.execute(sql["read_record"], (name,)).fetchone()) is not None:
            known[name] = msgspec.json.decode(row[0])
    changes = decide(known, now)
    settled = settle_all(db, SettleGroup.of(changes.settle), now)
    if not all(settled):
        raise LeaseLost(changes.settle[settled.index(False)].id)
    for name, record in changes.records.items():
        if record is None:
            db.execute(sql["delete_record"], (name,))
        else:
            db.execute(sql["write_record"], (name, as_json(record)))
    for name, alarm in changes.alarms.items():
        db.execute(sql["set_alarm"], (None if alarm is None else micros(alarm), name))
    enqueue(db, changes.enqueue, now)
    for waiting_for in changes.unpark:
        db.execute(sql["unpark_jobs"], {"waiting_for": waiting_for, "now": micros(now)})
    moves = tuple(_move(db, move, now) for move in changes.moves)
    for name, record in changes.counted(moves).items():
        db.execute(sql["write_record"], (name, as_json(record)))
    return Applied(answer=changes.answer, moved=moves)


def _is_ahead(db: sqlite3.Connection, lane: Lane, now: int) -> bool:
    """Return whether a job of a lane is ahead of the clock: younger ones would seem older."""
    return holds(db, "lane_is_ahead", {**lane._asdict(), "ahead": now + AHEAD // _MICROSECOND})


def recall(db: sqlite3.Connection, places: Places) -> int:
    """Move jobs that a clock set back has left behind later ones; return how many."""
    values = {
        "now": micros(places.now),
        "begin": micros(places.begin),
        "ahead": micros(places.ahead),
        "by": places.by // _MICROSECOND,
        "retries_from": micros(places.retries_from),
        "spans": json.dumps(sorted(SPANS)),
    }
    recalled = db.execute(sql["recall_pending"], values).rowcount
    if places.by:
        recalled += db.execute(sql["recall_retries"], values).rowcount
    return recalled


def _insert_one(db: sqlite3.Connection, new: NewJob, now: datetime) -> Enqueued:
    if new.unique is not None and not db.execute(sql["job_exists"], (str(new.id),)).fetchone():
        key, until = new.unique.key, new.unique.until
        holder = db.execute(sql["unique_holder"], (key, micros(now))).fetchone()
        if holder is not None:
            if new.unique.on_duplicate != "keep":
                _amend(db, UUID(holder[0]), new, now)
            return Enqueued(id=UUID(holder[0]), is_duplicate=True)
        ends = micros(now + until) if isinstance(until, timedelta) else None
        db.execute(sql["hold_unique_key"], (key, str(new.id), until == "claimed", ends))
    _insert_all(db, [new], now)
    return Enqueued(id=new.id)


def _amend(db: sqlite3.Connection, holder: UUID, duplicate: NewJob, now: datetime) -> None:
    job = get(db, holder)
    after = None if job is None else amended(job, duplicate, now)
    if after is not None:
        db.execute(sql["amend_job"], amend_values(after))


def _insert_all(db: sqlite3.Connection, jobs: Sequence[NewJob], now: datetime) -> None:
    created_at = micros(now)
    start, left = 0, len(jobs)
    for rows, (insert, insert_plain) in _INSERTS.items():
        while left >= rows:
            group = jobs[start : start + rows]
            plain = all(map(is_plain, group))
            row = plain_row if plain else new_row
            values: list[Any] = []
            for job in group:
                values += row(job, now, created_at)
            db.execute(insert_plain if plain else insert, values)
            start += rows
            left -= rows


def settle_all(db: sqlite3.Connection, group: SettleGroup, now: datetime) -> list[bool]:
    """Settle jobs, each under its fence; return for each whether it was settled."""
    moves, plain = group.moves, group.is_plain
    completed = bool(group.completions) and _complete_all(db, group, now)
    if completed and all(plain):
        settled = [True] * len(moves)
    else:
        settled = [
            (completed and is_plain) or _settle(db, move, now)
            for move, is_plain in zip(moves, plain, strict=True)
        ]
    _free_keys(db, [move.id for move in moves])
    return settled


def _complete_all(db: sqlite3.Connection, group: SettleGroup, now: datetime) -> bool:
    """Record all plain successes, or none if a fence was lost: then each is recorded by itself.

    A statement releases the interpreter's lock once; a busy event loop may take some milliseconds
    to give it back.
    """
    at = {"now": micros(now)}
    db.execute("SAVEPOINT successes")
    done = sum(db.execute(text, values | at).rowcount for text, values in group.completions)
    complete = done == sum(group.is_plain)
    if not complete:
        db.execute("ROLLBACK TO successes")
    db.execute("RELEASE successes")
    return complete


def _settle(db: sqlite3.Connection, move: Transition, now: datetime) -> bool:
    return db.execute(sql["settle_job"], settle_values(move, now)).rowcount > 0


def checkpoint(db: sqlite3.Connection, added: Sequence[Checkpoint]) -> list[bool]:
    """Add to step logs, each under its fence; return which were added."""
    return [db.execute(sql["checkpoint"], checkpoint_values(each)).rowcount > 0 for each in added]


def _free_keys(db: sqlite3.Connection, jobs: Sequence[UUID]) -> None:
    if db.execute(sql["any_unique_key"]).fetchone() is not None:
        db.execute(sql["free_unique_keys"], (as_json(jobs),))


def _move(db: sqlite3.Connection, move: Move, now: datetime) -> Job | None:
    job = get(db, move.id)
    after = None if job is None else moved(job, move, now)
    if after is None:
        return None
    if move.verb is Verb.PURGE:
        db.execute(sql["delete_job"], (str(move.id),))
        return after
    if move.verb is Verb.TAKE:
        values = {"id": str(move.id), "worker": move.worker, "token": move.token}
        db.execute(sql["take_job"], values | {"now": micros(now)})
        if after.unique_key is not None:
            db.execute(sql["free_unique_key_on_claim"], (after.unique_key, str(after.id)))
        return after
    db.execute(sql["write_move"], move_values(after))
    _free_keys(db, [move.id])
    return after


def horizons(retention: Retention, now: datetime) -> dict[str, int | None]:
    """Return the times before which jobs, streams, keys and workers are pruned; None: never."""
    return {
        "finished": None if retention.finished is None else micros(now - retention.finished),
        "dead": None if retention.dead is None else micros(now - retention.dead),
        "streams": micros(now - retention.streams),
        "workers": micros(now - WORKERS_KEPT),
        "now": micros(now),
    }


def prune(db: sqlite3.Connection, horizons: Mapping[str, int | None], limit: int) -> int:
    """Delete jobs, streams, keys and workers from before the horizons; return how many."""
    pruned = 0
    for state, horizon in (
        (State.COMPLETED, "finished"),
        (State.CANCELLED, "finished"),
        (State.DEAD, "dead"),
    ):
        values = (state.value, horizons[horizon], limit - pruned)
        pruned += db.execute(sql["prune_jobs"], values).rowcount
    pruned += db.execute(sql["prune_unique_keys"], (horizons["now"],)).rowcount
    pruned += db.execute(sql["prune_done_keys"], (horizons["finished"],)).rowcount
    pruned += streams.prune(db, horizons, limit)
    return pruned + db.execute(sql["prune_workers"], (horizons["workers"],)).rowcount


def send(db: sqlite3.Connection, news: Sequence[News], now: datetime) -> None:
    """Add news, each once."""
    rows = [(item.topic, str(item.id), item.body.decode(), micros(now)) for item in news]
    db.executemany(sql["send_news"], rows)


def hear(
    db: sqlite3.Connection, topics: Sequence[str], decide: Hear[T], now: datetime
) -> Applied[T]:
    """Let a reducer decide about news, and delete them."""
    values = (as_json(topics), _NEWS_PER_HEARING)
    rows = db.execute(sql["read_news"], values).fetchall()
    news = [
        News(topic=topic, id=UUID(id_), body=body.encode(), at=instant(at))
        for topic, id_, body, at in rows
    ]
    db.executemany(sql["forget_news"], [row[:2] for row in rows])
    return apply(db, topics, lambda records, now: decide(records, news, now), now)
