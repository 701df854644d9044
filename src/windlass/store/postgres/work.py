"""Owns what the PostgreSQL store says to the server: statements, their values, their answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from msgspec.structs import replace
from psycopg import AsyncCursor

from windlass.core.changes import Applied, Changes, Decide, Hear, Move, Verb, moved
from windlass.core.errors import Fenced
from windlass.core.job import Claim, Floor, Head, Job, Json, Lane, Ringing, Sweep
from windlass.core.settle import Transition
from windlass.core.states import FINISHED, State
from windlass.store.columns import as_json
from windlass.store.postgres.exchange import Answer, Query
from windlass.store.postgres.lanes import Met
from windlass.store.postgres.rows import (
    claimed_job,
    complete_values,
    enqueue_document,
    instant,
    is_plain_success,
    job_of,
    news_of,
    settle_document,
    text_array,
)
from windlass.store.postgres.wire import Row

T = TypeVar("T")
Cursor = AsyncCursor[Any]
Statements = Mapping[str, str]
_PLACE = itemgetter(0, 3, -1)
_HEARD_AT_ONCE = 5_000
_FEW_MOVES = 10
_BOTTOM = Floor(datetime.min.replace(tzinfo=UTC), 0)


async def fetch(cursor: Cursor, statement: str, values: Any = None) -> list[Row]:
    """Run a statement, and return its rows."""
    await cursor.execute(statement, values)
    return await cursor.fetchall()


async def count(cursor: Cursor, statement: str, values: Any = None) -> int:
    """Run a statement, and return how many rows it changed."""
    await cursor.execute(statement, values)
    return cursor.rowcount


# -- sweep ---------------------------------------------------------------------------------------


def swept(rows: list[Row], mark: int) -> tuple[Sweep, list[tuple[Lane, Floor]], float]:
    """Return what `sweep` found: lanes, the place of each head, and the seconds that it took."""
    *found, (*_, clock, micros) = rows
    next_due = None
    if found and found[-1][0] is None:
        next_due = instant(found.pop()[4])
    heads = [(Lane(*row[:4]), Floor(instant(row[4]), row[5])) for row in found]
    sweep = Sweep(
        heads=tuple(Head(lane=lane, position=floor.due_at) for lane, floor in heads),
        next_due=next_due,
        now=instant(clock),
        mark=mark,
    )
    return sweep, heads, micros / 1e6


# -- claim -----------------------------------------------------------------------------------------


def claim_values(claim: Claim, worker: str, token: int) -> tuple[str, ...]:
    """Return the values of `claim` but the last: asks as columns.

    A count of -1 says that the lane is ordered; draws have a bit for each budget.
    """
    asks, budgets = claim.asks, list(claim.budgets)
    bits = {name: 1 << number for number, name in enumerate(budgets)}
    floors = [ask.floor or _BOTTOM for ask in asks]
    return (
        worker,
        str(token),
        text_array([ask.lane.queue for ask in asks]),
        text_array([ask.lane.kind for ask in asks]),
        _array([ask.lane.priority for ask in asks]),
        text_array([ask.lane.key for ask in asks]),
        _array([-1 if ask.ordered else ask.count for ask in asks]),
        text_array([floor.due_at.isoformat() for floor in floors]),
        _array([floor.seq for floor in floors]),
        _array([sum(bits[name] for name in ask.draws) for ask in asks]),
        _array([claim.budgets[name] for name in budgets]),
    )


def _array(numbers: Sequence[int]) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"


def met(claim: Claim, rows: list[Row], worker: str, token: int) -> list[Met]:
    """Return what each ask got, in their order, each with its lane's oldest jobs first."""
    rows.sort(key=_PLACE)
    got: list[list[Row]] = [[] for _ in claim.asks]
    for row in rows:
        got[row[0] - 1].append(row)
    budgets = dict(claim.budgets)
    answers = []
    for ask, taken in zip(claim.asks, got, strict=True):
        most = 1 if ask.ordered else ask.count
        room = min((most, *(budgets[name] for name in ask.draws)))
        for name in ask.draws:
            budgets[name] -= len(taken)
        read = [claimed_job(row, ask.lane, worker, token) for row in taken]
        jobs = [job for job in read if job is not None]
        last = Floor(instant(taken[-1][3]), taken[-1][-1]) if taken else None
        bad = [row[1] for row, job in zip(taken, read, strict=True) if job is None]
        answers.append(Met(ask.lane, jobs, last, dry=len(taken) < room, unreadable=bad))
    return answers


def burial(job: UUID, token: int) -> Transition:
    """Return the end of a claimed job that cannot be read, so that it stops nobody else.

    Everything that is in its row stays there, with the log of its steps.
    """
    reason = (
        "it cannot be read, so it was not written by Windlass; what its steps did, if it has any, "
        "is not undone"
    )
    return Transition(id=job, token=token, state=State.DEAD, reason=reason)


# -- settle ----------------------------------------------------------------------------------------


def settle_queries(
    sql: Statements, successes: Sequence[Transition], others: Sequence[Transition]
) -> list[Query]:
    """Return what settles jobs: plain successes by the way that is made for them."""
    queries = []
    if successes:
        queries.append(Query(sql["complete"], complete_values(successes)))
    if others:
        queries.append(Query(sql["settle"], (settle_document(others),)))
    return queries


def refused(
    answers: Sequence[Answer], successes: Sequence[Transition], others: Sequence[Transition]
) -> set[UUID]:
    """Return the ids of those whose fence was gone, by the answers to `settle_queries`."""
    found: set[UUID] = set()
    for moves, answer in zip(filter(None, (successes, others)), answers, strict=True):
        ((done,),) = answer.rows()
        if done is not None:
            found.update({move.id for move in moves}.difference(done))
    return found


# -- apply -----------------------------------------------------------------------------------------


async def apply(
    cursor: Cursor, sql: Statements, schema: str, names: Sequence[str], decide: Decide[T]
) -> Applied[T]:
    """Let a reducer decide under the lock of records, and carry that out in one transaction."""
    async with cursor.connection.transaction():
        known, now = await _lock(cursor, sql, schema, names)
        return await _carry_out(cursor, sql, decide(known, now), now)


async def hear(
    cursor: Cursor, sql: Statements, schema: str, topics: Sequence[str], decide: Hear[T]
) -> Applied[T]:
    """Do the same with the news of topics, which are gone with that."""
    async with cursor.connection.transaction():
        known, now = await _lock(cursor, sql, schema, topics)
        # In a statement after the lock: whoever had it before has taken what is not here any more.
        rows = await fetch(cursor, sql["take_news"], (list(topics), _HEARD_AT_ONCE))
        changes = decide(known, [news_of(row) for row in rows], now)
        return await _carry_out(cursor, sql, changes, now)


async def ringing(cursor: Cursor, sql: Statements, limit: int) -> Ringing:
    """Return records whose alarm has gone off, and when the next one will."""
    *rung, (_, _, clock, upcoming) = await fetch(cursor, sql["ringing"], {"limit": max(limit, 1)})
    return Ringing(
        records={name: msgspec.json.decode(value) for name, value, *_ in rung},
        next=None if upcoming is None else instant(upcoming),
        now=instant(clock),
    )


async def _lock(
    cursor: Cursor, sql: Statements, schema: str, names: Sequence[str]
) -> tuple[dict[str, Json], datetime]:
    """Lock records, and return those that exist, and the time."""
    known: dict[str, Json] = {}
    if names:
        # In the order of names, so that two who lock the same cannot wait for each other.
        locks = [f"{schema}:{name}" for name in sorted(set(names))]
        await cursor.execute(sql["lock_records"], (locks,))
        rows = await fetch(cursor, sql["read_records"], (list(names),))
        known = {name: msgspec.json.decode(value) for name, value in rows}
    ((clock,),) = await fetch(cursor, sql["clock"])
    return known, instant(clock)


async def _carry_out(
    cursor: Cursor, sql: Statements, changes: Changes[T], now: datetime
) -> Applied[T]:
    await _settle_all(cursor, sql, changes.settle)
    kept = {name: record for name, record in changes.records.items() if record is not None}
    if kept:
        documents = [as_json(record) for record in kept.values()]
        await cursor.execute(sql["write_records"], (list(kept), documents))
    if gone := [name for name in changes.records if name not in kept]:
        await cursor.execute(sql["delete_records"], (gone,))
    if changes.alarms:
        values = (list(changes.alarms), list(changes.alarms.values()))
        await cursor.execute(sql["set_alarms"], values)
    if changes.enqueue:
        await cursor.execute(sql["enqueue"], (enqueue_document(changes.enqueue),))
    if changes.unpark:
        await cursor.execute(sql["unpark"], (list(changes.unpark),))
    done = await _cancel_together(cursor, sql, changes.moves, now)
    # In the order of ids, so that two who move the same jobs cannot wait for each other.
    for number, move in sorted(enumerate(changes.moves), key=lambda each: each[1].id):
        if number not in done:
            done[number] = await _move(cursor, sql, move, now)
    moves = tuple(done[number] for number in range(len(changes.moves)))
    return Applied(answer=changes.answer, moved=moves)


async def _cancel_together(
    cursor: Cursor, sql: Statements, moves: Sequence[Move], now: datetime
) -> dict[int, Job | None]:
    """Cancel those who wait, if they are many; all others that are to be moved are locked then."""
    cancels = {move.id: number for number, move in enumerate(moves) if move.verb is Verb.CANCEL}
    if len(moves) <= _FEW_MOVES or len(cancels) < len(moves):
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


async def _settle_all(cursor: Cursor, sql: Statements, moves: Sequence[Transition]) -> None:
    for move in sorted(moves, key=lambda move: move.id):
        if is_plain_success(move):
            rows = await fetch(cursor, sql["complete"], complete_values([move]))
            settled = rows[0][0] is None
        else:
            rows = await fetch(cursor, sql["settle"], (settle_document([move]),))
            settled = bool(rows[0][0])
        if not settled:
            raise Fenced(move.id)


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
    if move.verb is Verb.PURGE:
        await cursor.execute(sql["purge"], (move.id,))
    elif move.verb is Verb.RESEAL:
        await cursor.execute(sql["reseal"], values)
        return after
    elif move.verb is Verb.REDRIVE:
        await cursor.execute(sql["redrive"], values)
    elif after.state in FINISHED:
        await cursor.execute(sql["cancel_live"], values)
        after = replace(after, finished_at=now)
    else:
        await cursor.execute(sql["move_live"], values)
    if after.state is State.PENDING:
        await cursor.execute(sql["wake"], ([after.queue], [after.kind]))
    return after
