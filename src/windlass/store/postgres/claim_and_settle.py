"""Owns sweeps, claims, settles and checkpoints: their parameters, and how their rows are read."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter, itemgetter
from uuid import UUID

from windlass.core.claims.lanes import Ask, Claim, Floor, Head, Queues, Sweep
from windlass.core.jobs.job import Checkpoint, Job, Lane
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import State
from windlass.store.postgres.connections.connection import Row
from windlass.store.postgres.connections.per_loop import LoopConnections
from windlass.store.postgres.connections.pipeline import Query
from windlass.store.postgres.lane_cache import AskResult, LaneCache
from windlass.store.postgres.parameters import (
    checkpoint_document,
    complete_values,
    is_plain_success,
    settle_document,
    text_array,
)
from windlass.store.postgres.records import Statements
from windlass.store.postgres.rows import claimed_jobs, instant

_ID = attrgetter("id.int")
_ASK_DUE_AND_SEQ = itemgetter(0, 3, -1)
_NO_FLOOR = Floor(datetime.min.replace(tzinfo=UTC), 0)
_UNREADABLE = (
    "its row cannot be read, so Windlass did not write it; completed steps, if any, are not undone"
)


async def sweep(connections: LoopConnections, sql: Statements, queues: Queues) -> Sweep:
    """Return the heads of the lanes of some queues, and keep them for the claims that follow."""
    lanes, mark = connections.lanes.of(queues, time.monotonic()), connections.listener.mark
    unnamed = lanes.unnamed
    query = Query(sql["sweep"]) if queues is None else _query_of_queues(sql, sorted(queues))
    (answer,) = await connections.pipeline.send([query])
    heads, next_due, now, cost = _read_sweep(answer.rows())
    swept = Sweep(
        heads=tuple(Head(lane=lane, position=floor.due_at) for lane, floor in heads),
        next_due=next_due,
        now=now,
        mark=mark,
    )
    lanes.swept(heads, swept, cost=cost, now=time.monotonic())
    if lanes.unnamed != unnamed:
        # The sweep may have missed jobs of which a notification arrived since.
        lanes.doubt()
    return swept


async def believed_sweep(connections: LoopConnections, sql: Statements, queues: Queues) -> Sweep:
    """Return the lanes from the cache, after a sweep only if one is due.

    Queues that a wake-up has named are looked at before.
    """
    now = time.monotonic()
    lanes = connections.lanes.of(queues, now)
    if unseen := lanes.unseen(now):
        await _look_at(connections, sql, lanes, unseen)
    if lanes.are_believed_empty and lanes.is_due(now):
        await sweep(connections, sql, queues)
    elif lanes.is_due(now):
        # The sweep is sent with the next claim, which need not wait for it.
        connections.sweep_along(lanes, lambda: sweep(connections, sql, queues))
    return lanes.believed(connections.listener.mark, time.monotonic())


async def _look_at(
    connections: LoopConnections, sql: Statements, lanes: LaneCache, unseen: Mapping[str, int]
) -> None:
    """Add the lanes of some queues to the cache."""
    try:
        (answer,) = await connections.pipeline.send([_query_of_queues(sql, sorted(unseen))])
    except BaseException:
        lanes.doubt()  # Else their jobs would wait for another wake-up.
        raise
    heads, _, _, cost = _read_sweep(answer.rows())
    lanes.looked(unseen, heads, cost=cost, now=time.monotonic())


def _query_of_queues(sql: Statements, queues: Sequence[str]) -> Query:
    return Query(sql["sweep_queues"], (text_array(queues),))


def _read_sweep(
    rows: list[Row],
) -> tuple[list[tuple[Lane, Floor]], datetime | None, datetime, float]:
    """Return the lanes, the next due time, the current time, and the seconds that it took."""
    *rows, (*_, clock, micros) = rows
    next_due = instant(rows.pop()[4]) if rows and rows[-1][0] is None else None
    heads = [(Lane(*row[:4]), Floor(instant(row[4]), row[5])) for row in rows]
    return heads, next_due, instant(clock), micros / 1e6


async def claim(
    connections: LoopConnections, sql: Statements, claim: Claim, worker: str, token: int
) -> list[Job]:
    """Claim the jobs that are asked for; unreadable ones become dead."""
    values = claim_values(claim, worker, token)
    query = Query(sql["claim"], values, takes_durability=True)
    (answer,) = await connections.pipeline.send([query], heavy=True)
    results = _by_ask(claim, answer.rows(), worker, token)
    connections.lanes.claimed(results)
    if unreadable := [job for result in results for job in result.unreadable]:
        # Their rows stay as they are, with their step logs.
        dead = [
            Transition(id=job, token=token, state=State.DEAD, reason=_UNREADABLE)
            for job in unreadable
        ]
        await settle(connections, sql, dead)
    return [job for result in results for job in result.jobs]


def claim_values(claim: Claim, worker: str, token: int) -> tuple[str, ...]:
    """Return the values of `claim` but the last: lanes as columns, and asks as numbers of lanes.

    A count of -1 says that the lane is ordered; draws have a bit for each budget.
    """
    bits = {name: 1 << number for number, name in enumerate(claim.budgets)}
    numbers: dict[tuple[Lane, tuple[str, ...]], int] = {}
    asked: list[int] = []
    lanes: list[Ask] = []
    for ask in claim.asks:
        number = numbers.setdefault((ask.lane, ask.draws), len(numbers) + 1)
        if number > len(lanes):
            lanes.append(ask)
        asked.append(number)
    floors = [ask.floor or _NO_FLOOR for ask in lanes]
    return (
        worker,
        str(token),
        text_array([ask.lane.queue for ask in lanes]),
        text_array([ask.lane.kind for ask in lanes]),
        _array([ask.lane.priority for ask in lanes]),
        text_array([ask.lane.key for ask in lanes]),
        text_array([floor.due_at.isoformat() for floor in floors]),
        _array([floor.seq for floor in floors]),
        _array([sum([bits[name] for name in ask.draws]) for ask in lanes]),
        _array([*claim.budgets.values()]),
        _array(asked),
        _array([-1 if ask.ordered else ask.count for ask in claim.asks]),
    )


def _array(numbers: Sequence[int]) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"


def _by_ask(claim: Claim, rows: list[Row], worker: str, token: int) -> list[AskResult]:
    """Return the jobs that each ask got, in the order of asks, the oldest of its lane first."""
    rows.sort(key=_ASK_DUE_AND_SEQ)
    taken_by_ask: list[list[Row]] = [[] for _ in claim.asks]
    for row in rows:
        taken_by_ask[row[0] - 1].append(row)
    budgets = dict(claim.budgets)
    results = []
    for ask, taken in zip(claim.asks, taken_by_ask, strict=True):
        most = min((1 if ask.ordered else ask.count, *(budgets[name] for name in ask.draws)))
        for name in ask.draws:
            budgets[name] -= len(taken)
        read = claimed_jobs(taken, ask.lane, worker, token)
        jobs = [job for job in read if job is not None]
        last = Floor(instant(taken[-1][3]), taken[-1][-1]) if taken else None
        unreadable = [row[1] for row, job in zip(taken, read, strict=True) if job is None]
        results.append(AskResult(ask.lane, jobs, last, len(taken) < most, unreadable))
    return results


async def settle(
    connections: LoopConnections, sql: Statements, transitions: Sequence[Transition]
) -> list[bool]:
    """Record transitions, and return for each whether its fence still held."""
    if len({move.id.int for move in transitions}) < len(transitions):
        # In a group that settles a job twice, the first settle counts; so its order matters.
        return [(await _settle(connections, sql, [move]))[0] for move in transitions]
    return await _settle(connections, sql, transitions)


async def _settle(
    connections: LoopConnections, sql: Statements, transitions: Sequence[Transition]
) -> list[bool]:
    successes: list[Transition] = []
    others: list[Transition] = []
    # In the order of ids, so that two workers that settle the same jobs cannot deadlock.
    for move in sorted(transitions, key=_ID):
        (successes if is_plain_success(move) else others).append(move)
    queries = []
    if successes:
        queries.append(Query(sql["complete"], complete_values(successes)))
    if others:
        queries.append(Query(sql["settle"], (settle_document(others),)))
    answers = await connections.pipeline.send(queries, durable=True)
    lost: set[UUID] = set()
    for moves, answer in zip(filter(None, (successes, others)), answers, strict=True):
        ((settled,),) = answer.rows()
        if settled is not None:  # NULL means all of them.
            lost.update({move.id for move in moves}.difference(settled))
    return [not lost or move.id not in lost for move in transitions]


async def checkpoint(
    connections: LoopConnections, sql: Statements, added: Sequence[Checkpoint]
) -> list[bool]:
    """Add to the step logs of jobs, and return for each whether its fence still held."""
    query = Query(sql["checkpoint"], (checkpoint_document(added),))
    (answer,) = await connections.pipeline.send([query], durable=True)
    ((taken,),) = answer.rows()
    # Of two fences for one job, at most one holds, and no caller has two of one job at once.
    ids = set(taken)
    return [checkpoint.id in ids for checkpoint in added]
