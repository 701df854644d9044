"""Owns the work that the SQLite store gives to its threads: what each says to the database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from msgspec.structs import replace

from windlass.core.changes import Applied, Decide, Move, Verb, moved
from windlass.core.errors import Fenced
from windlass.core.job import (
    Checkpoint,
    Claim,
    Enqueued,
    Head,
    Job,
    Lane,
    NewJob,
    Retention,
    Sweep,
)
from windlass.core.settle import Transition
from windlass.core.states import State
from windlass.core.unique import amended
from windlass.store.columns import as_json
from windlass.store.protocol import WORKERS_KEPT
from windlass.store.sql import load_statements, repeat_values
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

T = TypeVar("T")
sql = load_statements("windlass.store.sqlite")
_ROWS_AT_ONCE = 100
_INSERT_MANY = repeat_values(sql["insert_jobs"], _ROWS_AT_ONCE)
_INSERT_MANY_PLAIN = repeat_values(sql["insert_plain_jobs"], _ROWS_AT_ONCE)


def insert(db: sqlite3.Connection, jobs: Sequence[NewJob], now: datetime) -> list[Enqueued]:
    """Add jobs, and say what became of each."""
    for job in jobs:
        if job.unique is not None:
            return [_insert_one(db, each, now) for each in jobs]
    _insert_all(db, jobs, now)
    return [Enqueued(id=job.id) for job in jobs]


def sweep(db: sqlite3.Connection, mark: int, now: datetime) -> Sweep | None:
    """Walk the lanes; None says that the name of one cannot be read."""
    try:
        heads = [
            Head(lane=Lane(queue, kind, priority, key), position=instant(due_at))
            for queue, kind, priority, key, due_at in db.execute(sql["sweep_heads"])
        ]
    except sqlite3.OperationalError as error:
        if "decode" in str(error):
            return None
        raise
    due = db.execute(sql["next_due"]).fetchone()
    next_due = None if due is None else instant(due[0])
    return Sweep(heads=tuple(heads), next_due=next_due, now=now, mark=mark)


def claim(db: sqlite3.Connection, asked: Claim, worker: str, token: int, now: int) -> list[Job]:
    """Start jobs under a live lease, ask by ask, within the budgets."""
    if db.execute(sql["worker_is_live"], {"id": worker, "now": now}).fetchone() is None:
        return []
    values: dict[str, Any] = {"worker": worker, "token": token, "now": now}
    budgets = dict(asked.budgets)
    taken: list[Job] = []
    for ask in asked.asks:
        room = min((ask.count, *(budgets[name] for name in ask.draws)))
        if room <= 0:
            continue
        got = _claim_lane(db, {**values, **ask.lane._asdict(), "count": room})
        for name in ask.draws:
            budgets[name] -= len(got)
        taken += got
    for job in taken:
        if job.unique_key is not None:
            db.execute(sql["free_unique_key_on_claim"], (job.unique_key, str(job.id)))
    return taken


def rescue(db: sqlite3.Connection, worker: str, token: int, limit: int, now: int) -> list[Job]:
    """End leases that ran out, and take over what their workers held."""
    if not yes(db, "worker_may_rescue", {"id": worker, "now": now}):
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
    """Let a reducer decide, and carry that out; the caller's savepoint undoes what is fenced."""
    known = {}
    for name in names:
        if (row := db.execute(sql["read_record"], (name,)).fetchone()) is not None:
            known[name] = msgspec.json.decode(row[0])
    changes = decide(known, now)
    settled = settle_all(db, changes.settle, now)
    if not all(settled):
        raise Fenced(changes.settle[settled.index(False)].id)
    for name, record in changes.records.items():
        if record is None:
            db.execute(sql["delete_record"], (name,))
        else:
            db.execute(sql["write_record"], (name, as_json(record)))
    for name, alarm in changes.alarms.items():
        db.execute(sql["set_alarm"], (None if alarm is None else micros(alarm), name))
    insert(db, changes.enqueue, now)
    for waiting_for in changes.unpark:
        db.execute(sql["unpark_jobs"], {"waiting_for": waiting_for, "now": micros(now)})
    done = tuple(_move(db, move, now) for move in changes.moves)
    return Applied(answer=changes.answer, moved=done)


def yes(db: sqlite3.Connection, name: str, values: Mapping[str, Any]) -> bool:
    """Say whether a statement finds anything, and that it is not 0."""
    row = db.execute(sql[name], values).fetchone()
    return row is not None and bool(row[0])


def _claim_lane(db: sqlite3.Connection, values: Mapping[str, Any]) -> list[Job]:
    """Start the oldest jobs of a lane; what cannot be read is buried, and stops nobody."""
    db.execute("SAVEPOINT lane")
    jobs = readable(_in_order(db.execute(sql["claim_lane"], values)))
    if jobs is None:
        db.execute("ROLLBACK TO lane")
        bury_unreadable(db, values["now"], "pending")
        jobs = [job_of(row) for row in _in_order(db.execute(sql["claim_lane"], values))]
    db.execute("RELEASE lane")
    return jobs


def _in_order(rows: Iterable[Row]) -> Iterator[Row]:
    """Sort rows of RETURNING, which promises no order, as the lane is: due time, then arrival."""
    yield from sorted(rows, key=lambda row: (row[8], row[0]))


def _insert_one(db: sqlite3.Connection, new: NewJob, now: datetime) -> Enqueued:
    if new.unique is not None and not db.execute(sql["job_exists"], (str(new.id),)).fetchone():
        key, until = new.unique.key, new.unique.until
        holder = db.execute(sql["unique_holder"], (key, micros(now))).fetchone()
        if holder is not None:
            if new.unique.on_duplicate != "keep":
                _amend(db, UUID(holder[0]), new, now)
            return Enqueued(id=UUID(holder[0]), existing=True)
        ends = micros(now + until) if isinstance(until, timedelta) else None
        db.execute(sql["hold_unique_key"], (key, str(new.id), until == "claimed", ends))
    _insert_all(db, [new], now)
    return Enqueued(id=new.id)


def _amend(db: sqlite3.Connection, holder: UUID, duplicate: NewJob, now: datetime) -> None:
    job = get_job(db, holder)
    after = None if job is None else amended(job, duplicate, now)
    if after is not None:
        db.execute(sql["amend_job"], amend_values(after))


def _insert_all(db: sqlite3.Connection, jobs: Sequence[NewJob], now: datetime) -> None:
    created_at = micros(now)
    whole = len(jobs) - len(jobs) % _ROWS_AT_ONCE
    for start in range(0, whole, _ROWS_AT_ONCE):
        group = jobs[start : start + _ROWS_AT_ONCE]
        plain = all(map(is_plain, group))
        row = plain_row if plain else new_row
        values: list[Any] = []
        for job in group:
            values += row(job, now, created_at)
        db.execute(_INSERT_MANY_PLAIN if plain else _INSERT_MANY, values)
    for job in jobs[whole:]:
        if is_plain(job):
            db.execute(sql["insert_plain_jobs"], plain_row(job, now, created_at))
        else:
            db.execute(sql["insert_jobs"], new_row(job, now, created_at))


def settle_all(
    db: sqlite3.Connection, transitions: Sequence[Transition], now: datetime
) -> list[bool]:
    """Settle jobs, each under its fence; say for each whether it was settled."""
    successes = [move for move in transitions if _is_plain_success(move)]
    # In a group that settles a job twice, the first settle counts; so its order matters.
    in_any_order = len({move.id for move in transitions}) == len(transitions)
    done = in_any_order and len(successes) > 1 and _complete_all(db, successes, now)
    settled = [(done and _is_plain_success(move)) or _settle(db, move, now) for move in transitions]
    _free_keys(db, [move.id for move in transitions])
    return settled


def _is_plain_success(move: Transition) -> bool:
    return (
        move.state is State.COMPLETED
        and move.attempt is None
        and not move.failures
        and not move.crashes
        and not move.steps
        and move.saga is None
    )


def _complete_all(db: sqlite3.Connection, successes: Sequence[Transition], now: datetime) -> bool:
    """Record successes by one statement, or none if any is fenced: then each goes by itself.

    One statement is one release of the interpreter's lock, which a busy event loop may take some
    milliseconds to give back.
    """
    rows = [
        (move.id, move.token, None if move.result is None else move.result.decode(), move.reason)
        for move in successes
    ]
    db.execute("SAVEPOINT successes")
    values = {"now": micros(now), "successes": as_json(rows)}
    complete = db.execute(sql["complete_jobs"], values).rowcount == len(successes)
    if not complete:
        db.execute("ROLLBACK TO successes")
    db.execute("RELEASE successes")
    return complete


def _settle(db: sqlite3.Connection, move: Transition, now: datetime) -> bool:
    return db.execute(sql["settle_job"], settle_values(move, now)).rowcount > 0


def checkpoint(db: sqlite3.Connection, added: Sequence[Checkpoint]) -> list[bool]:
    """Add to logs of steps, each under its fence; say which were added to."""
    return [db.execute(sql["checkpoint"], checkpoint_values(each)).rowcount > 0 for each in added]


def _free_keys(db: sqlite3.Connection, jobs: Sequence[UUID]) -> None:
    """Free the unique keys of those jobs that are finished; most have none."""
    if db.execute(sql["any_unique_key"]).fetchone() is not None:
        db.execute(sql["free_unique_keys"], (as_json(jobs),))


def get_job(db: sqlite3.Connection, job: UUID) -> Job | None:
    """Return one job."""
    row = db.execute(sql["get_job"], (str(job),)).fetchone()
    return None if row is None else job_of(row)


def get_jobs(db: sqlite3.Connection, jobs: Sequence[UUID]) -> dict[UUID, Job]:
    """Return those of some jobs that exist."""
    found = [job_of(row) for row in db.execute(sql["get_jobs"], (as_json(jobs),))]
    return {job.id: job for job in found}


def done_job(db: sqlite3.Connection, kind: str, key: str) -> Job | None:
    """Return the job that was completed with an idempotency key, if it is still kept."""
    row = db.execute(sql["done_job"], (kind, key)).fetchone()
    return None if row is None else job_of(row)


def _move(db: sqlite3.Connection, move: Move, now: datetime) -> Job | None:
    job = get_job(db, move.id)
    after = None if job is None else moved(job, move, now)
    if after is None:
        return None
    if move.verb is Verb.PURGE:
        db.execute(sql["delete_job"], (str(move.id),))
        return after
    db.execute(sql["write_move"], move_values(after))
    _free_keys(db, [move.id])
    return after


def horizons(retention: Retention, now: datetime) -> dict[str, int | None]:
    """Return the times before which things are past keeping; None is before everything."""
    return {
        "finished": None if retention.finished is None else micros(now - retention.finished),
        "dead": None if retention.dead is None else micros(now - retention.dead),
        "workers": micros(now - WORKERS_KEPT),
        "now": micros(now),
    }


def prune(db: sqlite3.Connection, horizons: Mapping[str, int | None], limit: int) -> int:
    """Delete what is past keeping; return how much that was."""
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
    return pruned + db.execute(sql["prune_workers"], (horizons["workers"],)).rowcount
