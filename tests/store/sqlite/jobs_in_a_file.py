"""Owns how tests of the SQLite store make and claim jobs."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from windlass.core.claims.lanes import Ask, Claim
from windlass.core.jobs.ids import job_id
from windlass.core.jobs.job import Job, Lane, NewJob
from windlass.core.workers import WorkerInfo
from windlass.store.sqlite import SqliteStore

PATIENCE = timedelta(seconds=10)
LANE = Lane("default", "work")


def new(number: int, **fields: Any) -> NewJob:
    base: dict[str, Any] = {"id": job_id(number, number), "kind": "work", "payload": b"{}"}
    return NewJob(**base | fields)


async def worker(store: SqliteStore, name: str = "w") -> str:
    await store.register(
        WorkerInfo(id=name, name=name, host="h", pid=1, release="1", lease=PATIENCE, slots=10)
    )
    return name


async def claim(store: SqliteStore, count: int = 1000, token: int = 7) -> list[Job]:
    asks = (Ask(lane=LANE, count=count),)
    return await store.claim(Claim(asks=asks), worker=await worker(store), token=token)


def steps(db: sqlite3.Connection, work: Callable[[sqlite3.Connection], object]) -> int:
    """Count the steps of SQLite's machine that some work takes, which no other load can change."""
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    db.execute("BEGIN IMMEDIATE")
    db.set_progress_handler(step, 1)
    try:
        work(db)
    finally:
        db.set_progress_handler(None, 1)
        db.execute("ROLLBACK")
    return count
