"""Owns changes under the lock of records: `apply`, `hear`, and the changes that they carry out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec
import psycopg
from msgspec.structs import replace
from psycopg import AsyncCursor

from windlass.core.changes import Applied, Changes, Decide, Hear
from windlass.core.errors import LeaseLost
from windlass.core.jobs.job import Job
from windlass.core.jobs.moves import Move, Verb, moved
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import FINISHED, State
from windlass.core.records import Json, RecordPage, Ringing
from windlass.store.json_columns import as_json
from windlass.store.postgres.connections.connection import Row
from windlass.store.postgres.parameters import (
    enqueue_document,
    is_plain_success,
    settle_document,
    single_values,
)
from windlass.store.postgres.rows import instant, job_of, news_of

T = TypeVar("T")
Cursor = AsyncCursor[Any]
Statements = Mapping[str, str]
_MAX_NEWS = 5_000
_MAX_SINGLE_MOVES = 10


async def fetch(cursor: Cursor, statement: str, values: Any = None) -> list[Row]:
    """Run a statement, and return its rows."""
    await cursor.execute(statement, values)
    return await cursor.fetchall()


async def count(cursor: Cursor, statement: str, values: Any = None) -> int:
    """Run a statement, and return how many rows it changed."""
    await cursor.execute(statement, values)
    return cursor.rowcount


async def apply(
    cursor: Cursor, sql: Statements, names: Sequence[str], decide: Decide[T]
) -> Applied[T]:
    """Let a reducer decide under the lock of records, and apply its changes in one transaction."""
    async with cursor.connection.transaction() as transaction:
        known, made, now = await _lock(cursor, sql, names)
        changes = decide(known, now)
        applied = Applied(answer=changes.answer)
        if _is_nothing(changes):
            # The locks are rolled back: a commit would wait for the disk.
            raise psycopg.Rollback(transaction)
        applied = await _carry_out(cursor, sql, changes, now, made)
    return applied  # noqa: RET504 - a rollback comes here with what was there before it.


async def hear(
    cursor: Cursor, sql: Statements, topics: Sequence[str], decide: Hear[T]
) -> Applied[T]:
    """Do the same with the news of topics, which are deleted by that."""
    async with cursor.connection.transaction():
        known, made, now = await _lock(cursor, sql, topics)
        # In a statement after the lock, so that it sees what the last holder of the lock has taken.
        rows = await fetch(cursor, sql["take_news"], (list(topics), _MAX_NEWS))
        changes = decide(known, [news_of(row) for row in rows], now)
        return await _carry_out(cursor, sql, changes, now, made)


async def read(
    cursor: Cursor, sql: Statements, prefix: str, page: RecordPage | None
) -> dict[str, Json]:
    """Return the records whose names begin with a prefix, or a page of them."""
    if page is None:
        rows = await fetch(cursor, sql["list_records"], (prefix,))
    else:
        values = (prefix, page.end(prefix), page.limit)
        rows = await fetch(cursor, sql["list_last_records"], values)
    return {name: msgspec.json.decode(value) for name, value in rows}


async def ringing(cursor: Cursor, sql: Statements, limit: int) -> Ringing:
    *rung, (_, _, clock, upcoming) = await fetch(cursor, sql["ringing"], {"limit": max(limit, 1)})
    return Ringing(
        records={name: msgspec.json.decode(value) for name, value, *_ in rung},
        next=None if upcoming is None else instant(upcoming),
        now=instant(clock),
    )


async def _lock(
    cursor: Cursor, sql: Statements, names: Sequence[str]
) -> tuple[dict[str, Json], list[str], datetime]:
    """Lock records; return those that exist, the names of those made for the lock, and the time."""
    rows = await fetch(cursor, sql["lock_records"], (list(names),)) if names else []
    known = {name: msgspec.json.decode(value) for name, value in rows if value is not None}
    made = [name for name, value in rows if value is None]
    ((clock,),) = await fetch(cursor, sql["clock"])
    return known, made, instant(clock)


def _is_nothing(changes: Changes[T]) -> bool:
    return not (
        changes.records
        or changes.enqueue
        or changes.settle
        or changes.moves
        or changes.alarms
        or changes.unpark
        or changes.move_counts
    )


async def _carry_out(
    cursor: Cursor, sql: Statements, changes: Changes[T], now: datetime, made: Sequence[str]
) -> Applied[T]:
    await _settle_all(cursor, sql, changes.settle)
    kept = {name: record for name, record in changes.records.items() if record is not None}
    await _write(cursor, sql, kept)
    later = changes.move_counts
    if gone := [name for name in {*changes.records, *made} if name not in kept.keys() | later]:
        await cursor.execute(sql["delete_records"], (gone,))
    if changes.alarms:
        values = (list(changes.alarms), list(changes.alarms.values()))
        await cursor.execute(sql["set_alarms"], values)
    if changes.enqueue:
        await cursor.execute(sql["enqueue"], (enqueue_document(changes.enqueue),))
    if changes.unpark:
        await cursor.execute(sql["unpark"], (list(changes.unpark),))
    done = await _cancel_together(cursor, sql, changes.moves, now)
    done |= await _purge_together(cursor, sql, changes.moves)
    # In the order of ids, so that two processes that move the same jobs cannot deadlock.
    for number, move in sorted(enumerate(changes.moves), key=lambda pair: pair[1].id):
        if number not in done:
            done[number] = await _move(cursor, sql, move, now)
    moves = tuple(done[number] for number in range(len(changes.moves)))
    counted = changes.counted(moves)
    await _write(cursor, sql, counted)
    if gone := [name for name in made if name in later and name not in counted]:
        await cursor.execute(sql["delete_records"], (gone,))
    return Applied(answer=changes.answer, moved=moves)


async def _write(cursor: Cursor, sql: Statements, records: Mapping[str, Json]) -> None:
    if records:
        documents = [as_json(record) for record in records.values()]
        await cursor.execute(sql["write_records"], (list(records), documents))


async def _cancel_together(
    cursor: Cursor, sql: Statements, moves: Sequence[Move], now: datetime
) -> dict[int, Job | None]:
    """Cancel waiting jobs in one statement, if they are many; this locks all jobs of the moves."""
    cancels = {move.id: number for number, move in enumerate(moves) if move.verb is Verb.CANCEL}
    if len(moves) <= _MAX_SINGLE_MOVES or len(cancels) < len(moves):
        return {}
    rows = await fetch(cursor, sql["lock_many"], ([move.id for move in moves],))
    done: dict[int, Job | None] = {}
    for job in map(job_of, rows):
        after = moved(job, moves[cancels[job.id]], now)
        if after is not None and after.state in FINISHED:
            done[cancels[job.id]] = after
    ended = [job for job in done.values() if job is not None]
    values = ([job.id for job in ended], [job.reason for job in ended])
    await cursor.execute(sql["cancel_many"], values)
    return done


async def _purge_together(
    cursor: Cursor, sql: Statements, moves: Sequence[Move]
) -> dict[int, Job | None]:
    """Delete dead and finished jobs; those in other states are left alone."""
    purges = {number: move.id for number, move in enumerate(moves) if move.verb is Verb.PURGE}
    if not purges:
        return {}
    ids = list(set(purges.values()))
    rows = [*await fetch(cursor, sql["lock_many_dead"], (ids,))]
    rows += await fetch(cursor, sql["lock_many_finished"], (ids,))
    found = {job.id: job for job in map(job_of, rows)}
    await cursor.execute(sql["purge"], {"ids": list(found)})
    return {number: found.get(job_id) for number, job_id in purges.items()}


async def _settle_all(cursor: Cursor, sql: Statements, moves: Sequence[Transition]) -> None:
    for move in sorted(moves, key=lambda move: move.id):
        if is_plain_success(move):
            rows = await fetch(cursor, sql["complete"], single_values(move))
            settled = rows[0][0] is None
        else:
            rows = await fetch(cursor, sql["settle"], (settle_document([move]),))
            settled = bool(rows[0][0])
        if not settled:
            raise LeaseLost(move.id)


async def _move(cursor: Cursor, sql: Statements, move: Move, now: datetime) -> Job | None:
    rows = await fetch(cursor, sql["lock_live"], (move.id,))
    rows = rows or await fetch(cursor, sql["lock_dead"], (move.id,))
    job = job_of(rows[0]) if rows else None
    after = None if job is None else moved(job, move, now)
    if after is None:
        return None
    values = {
        "id": after.id,
        "state": after.state.value,
        "due_at": after.due_at,
        "waiting_for": after.waiting_for,
        "reason": after.reason,
        "cancel_requested": after.cancel_requested,
        "payload": after.payload.decode(),
        "steps": list(after.steps) or None,
        "saga": None if after.saga is None else after.saga.value,
    }
    if move.verb is Verb.TAKE:
        taken = {"id": move.id, "worker": move.worker, "token": move.token, "now": now}
        await cursor.execute(sql["take"], taken)
        return after
    if move.verb is Verb.RESEAL:
        await cursor.execute(sql["reseal"], values)
        return after
    if move.verb is Verb.REDRIVE:
        await cursor.execute(sql["redrive"], values)
    elif after.state in FINISHED:
        await cursor.execute(sql["cancel_live"], values)
        after = replace(after, finished_at=now)
    else:
        await cursor.execute(sql["move_live"], values)
    if after.state is State.PENDING:
        await cursor.execute(sql["wake"], ([after.queue], [after.kind]))
    return after
