"""Owns what an earlier release leaves to a later one: jobs in every state, and how to make them.

On PostgreSQL today's release leaves them to the next. On SQLite they are copied into a file of the
earlier schema: what that one has no column for, nobody had.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec

from tests.support.clocked_stores import opened
from windlass.app.enqueueing.id_generator import IdGenerator
from windlass.core.changes import Changes
from windlass.core.claims.lanes import Ask, Claim
from windlass.core.jobs.job import Attempt, ErrorInfo, Job, Lane, NewJob, Progress, UniqueKey
from windlass.core.jobs.moves import Move, Verb
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import State
from windlass.core.workers import WorkerInfo
from windlass.store import Store
from windlass.store.sqlite import SqliteStore
from windlass.store.sqlite.connections import file

KIND = "work"
TOKEN = 7
AWAY, GONE = "away", "gone"
"""Workers of the earlier release: one works on, the other was lost."""
HOUR = timedelta(hours=1)
MOMENT = timedelta(milliseconds=1)
KEYS = {
    "held": UniqueKey(key="held"),
    "waiting": UniqueKey(key="waiting", until="claimed"),
    "bound": UniqueKey(key="bound", until=HOUR),
}
"""The unique keys of some jobs, by the jobs' names."""
_ids = IdGenerator()
_ERROR = ErrorInfo(type="ValueError", message="not yet", fingerprint="f")


@dataclass(frozen=True)
class Left:
    """Where a later release finds what was left, and what that was, by the names of the jobs."""

    url: str
    jobs: dict[str, Job]

    @property
    def ids(self) -> dict[str, UUID]:
        """The ids of the jobs, by their names."""
        return {name: job.id for name, job in self.jobs.items()}


def new(name: str, **fields: Any) -> NewJob:
    """Return a job whose handler is told its name."""
    base: dict[str, Any] = {
        "id": _ids.next(),
        "kind": KIND,
        "payload": msgspec.json.encode({"name": name}),
        "unique": KEYS.get(name),
    }
    return NewJob(**base | fields)


def left_on_postgres(url: str) -> Left:
    """Leave jobs in a database, as today's release does."""

    async def leave() -> dict[str, Job]:
        async with opened(url) as store:
            await store.migrate()
            return await _leave(store)

    return Left(url, asyncio.run(leave()))


def left_on_sqlite(number: int, directory: Path) -> Left:
    """Leave jobs in a file of an earlier schema."""
    today, before = directory / "today.db", directory / "before.db"

    async def leave() -> dict[str, Job]:
        store = SqliteStore(today)
        try:
            await store.migrate()
            return await _leave(store)
        finally:
            await store.close()

    jobs = asyncio.run(leave())
    _copy(today, before, number)
    return Left(f"sqlite:///{before}", jobs)


def _copy(today: Path, before: Path, number: int) -> None:
    with closing(sqlite3.connect(before, isolation_level=None)) as db:
        for step in file.MIGRATIONS:
            if step.number <= number:
                db.executescript(step.sql)
        db.execute(f"PRAGMA user_version = {number}")
        db.execute("ATTACH ? AS today", (str(today),))
        tables = "SELECT name FROM main.sqlite_master WHERE type = 'table'"
        for (table,) in db.execute(tables).fetchall():
            columns = ", ".join(row[1] for row in db.execute(f"PRAGMA main.table_info({table})"))
            db.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM today.{table}")


async def _leave(store: Store) -> dict[str, Job]:
    """Make jobs in every state, with all that a job of the first schema can have."""
    await _enter(store, AWAY, HOUR)
    await _enter(store, GONE, HOUR)
    ids = await _add_waiting(store)
    ids |= await _add_ended(store)
    ids |= await _add_running(store)
    await store.apply([], lambda _records, _now: Changes(answer=None, records={"a": {"n": 1}}))
    found = {name: await store.get(id_) for name, id_ in ids.items()}
    jobs = {name: job for name, job in found.items() if job is not None}
    assert jobs.keys() == ids.keys()
    assert {job.state for job in jobs.values()} == set(State)
    return jobs


async def _enter(store: Store, worker: str, lease: timedelta) -> None:
    await store.register(
        WorkerInfo(id=worker, name=worker, host="h", pid=1, release="1", lease=lease, slots=9)
    )


async def _add_waiting(store: Store) -> dict[str, UUID]:
    jobs = {
        "pending": new("pending", headers={"a": "b"}, key="k", priority=5, timeout=HOUR),
        "held": new("held", max_retries=3),
        "waiting": new("waiting"),
        "expired": new("expired", expires=MOMENT),
        "due": new("due", due=MOMENT),
        "later": new("later", due=HOUR),
        "sooner": new("sooner", due=HOUR),
    }
    await store.enqueue(list(jobs.values()))
    return {name: job.id for name, job in jobs.items()}


async def _add_ended(store: Store) -> dict[str, UUID]:
    """Add jobs with an attempt behind them: some are over, some wait for the next one."""
    names = ("completed", "bound", "cancelled", "dead", "buried", "retrying", "released")
    jobs = await _claim(store, names, AWAY)
    failed: dict[str, dict[str, Any]] = {
        name: {"failures": 1, "error": _ERROR, "attempt": _attempt(jobs[name])}
        for name in ("dead", "buried", "retrying")
    }
    ends: dict[str, dict[str, Any]] = {
        "completed": {"state": State.COMPLETED, "result": b'"of old"'},
        "bound": {"state": State.COMPLETED},
        "cancelled": {"state": State.CANCELLED, "reason": "by hand"},
        "dead": {"state": State.DEAD, **failed["dead"]},
        "buried": {"state": State.DEAD, **failed["buried"]},
        "retrying": {"state": State.SCHEDULED, "due": MOMENT, **failed["retrying"]},
        "released": {"state": State.PENDING},
    }
    moves = [Transition(id=jobs[name].id, token=TOKEN, **ends[name]) for name in names]
    assert all(await store.settle(moves))
    return {name: job.id for name, job in jobs.items()}


def _attempt(job: Job) -> Attempt:
    return Attempt(
        number=1,
        worker=AWAY,
        started_at=job.started_at,
        duration=timedelta(seconds=1),
        outcome="failed",
        error=_ERROR,
    )


async def _add_running(store: Store) -> dict[str, UUID]:
    """Add jobs that run: one whose worker lives, and two that were lost with theirs."""
    jobs = await _claim(store, ("running",), AWAY) | await _claim(store, ("lost", "stopped"), GONE)
    assert await store.progress(jobs["running"].id, TOKEN, Progress(fraction=0.5))
    stop = Move(verb=Verb.CANCEL, id=jobs["stopped"].id, reason="by hand")
    applied = await store.apply([], lambda _records, _now: Changes(answer=None, moves=[stop]))
    assert applied.moved[0] is not None
    await _enter(store, GONE, MOMENT)
    return {name: job.id for name, job in jobs.items()}


async def _claim(store: Store, names: tuple[str, ...], worker: str) -> dict[str, Job]:
    """Add jobs, each in a queue of its own name, and start them."""
    await store.enqueue([new(name, queue=name) for name in names])
    asks = tuple(Ask(lane=Lane(name, KIND), count=1) for name in names)
    jobs = await store.claim(Claim(asks=asks), worker=worker, token=TOKEN)
    assert {job.queue for job in jobs} == set(names)
    return {job.queue: job for job in jobs}
