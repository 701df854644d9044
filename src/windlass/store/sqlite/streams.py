"""Owns the streams of jobs in the SQLite store."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from uuid import UUID

from windlass.core.jobs.streams import Appended, ChunkGroup, Position, StoredGroup, StreamPage
from windlass.store.sqlite.queries import sql


def append(db: sqlite3.Connection, group: ChunkGroup, now: int) -> Appended | None:
    """Add chunks to the stream of a running job, under its fence."""
    values = {
        "job": str(group.id),
        "token": group.token,
        "attempt": group.attempt,
        "offset": group.offset,
        "resumed": group.resumed,
        "steps": group.steps,
        "count": len(group.chunks),
        "size": group.size,
        "chunks": group.data.decode(),
        "now": now,
    }
    if db.execute(sql["job_is_held"], values).fetchone() is None:
        return None
    db.execute(sql["begin_stream"], values)
    if group.offset == 0:
        db.execute(sql["replace_chunks"], values)
    db.execute(sql["stream_append"], values)
    return Appended(*db.execute(sql["stream_end"], (str(group.id),)).fetchone())


def read(db: sqlite3.Connection, job: UUID, after: Position, limit: int) -> StreamPage:
    # In this order: a job that ends in between has added its last chunks before.
    is_live = db.execute(sql["job_is_live"], (str(job),)).fetchone() is not None
    values = {"job": str(job), **after._asdict(), "limit": max(limit, 1)}
    rows = db.execute(sql["stream_read"], values).fetchall()
    return StreamPage([StoredGroup.of(*row) for row in rows], is_live)


def prune(db: sqlite3.Connection, horizons: Mapping[str, int | None], limit: int) -> int:
    """Delete the streams of jobs that ended before the horizon, or are gone; return how many."""
    rows = db.execute(sql["old_streams"], {**horizons, "limit": limit}).fetchall()
    over = [(job,) for job, is_over, _ in rows if is_over]
    db.executemany(sql["delete_stream"], over)
    db.executemany(sql["check_stream"], [(at, job) for job, is_over, at in rows if not is_over])
    return len(over)
