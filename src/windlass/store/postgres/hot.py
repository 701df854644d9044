"""Owns what goes by the hot line: sweeps, claims, settles and steps, and how answers are read."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from operator import attrgetter
from uuid import UUID

from windlass.core.job import Checkpoint, Claim, Job, Sweep
from windlass.core.settle import Transition
from windlass.store.postgres import work
from windlass.store.postgres.home import Home
from windlass.store.postgres.rows import checkpoint_document, is_plain_success
from windlass.store.postgres.wire import AsyncWire, Row
from windlass.store.postgres.work import Statements

_ID = attrgetter("id.int")


async def sweep(home: Home, sql: Statements) -> Sweep:
    """Look at the heads of all lanes, and let the home know them."""
    mark = home.ear.mark

    async def send(wire: AsyncWire, _durable: bool) -> Callable[[], Awaitable[list[Row]]]:
        cursor = wire.cursor(binary=True)
        await cursor.execute(sql["sweep"])
        return cursor.fetchall

    sweep, heads, cost = work.swept(await home.hot.carry(send), mark)
    home.lanes.swept(heads, sweep, cost=cost, now=time.monotonic())
    if home.ear.mark != mark:
        home.lanes.doubt()  # What we were told of meanwhile, it may not have seen.
    return sweep


async def believed_sweep(home: Home, sql: Statements) -> Sweep:
    """Return what is believed of the lanes, having looked at them only if there was need to."""
    now = time.monotonic()
    if home.lanes.are_believed_empty and home.lanes.is_due(now):
        await sweep(home, sql)
    elif home.lanes.is_due(now):
        # It travels along with the next claim, which need not wait for it.
        home.sweep_along(lambda home: sweep(home, sql))
    return home.lanes.believed(home.ear.mark, time.monotonic())


async def claim(home: Home, sql: Statements, claim: Claim, worker: str, token: int) -> list[Job]:
    """Take the jobs that are asked for; those that cannot be read are buried."""
    values = work.claim_values(claim, worker, token)

    async def send(wire: AsyncWire, durable: bool) -> Callable[[], Awaitable[list[Row]]]:
        cursor = wire.cursor(binary=True)
        await cursor.execute(sql["claim"], values | {"lazily": not durable})
        return cursor.fetchall

    answers = work.met(claim, await home.hot.carry(send, heavy=True), worker, token)
    home.lanes.claimed(answers)
    if unreadable := [each for answer in answers for each in answer.unreadable]:
        await settle(home, sql, [work.burial(each, token) for each in unreadable])
    return [job for answer in answers for job in answer.jobs]


async def settle(home: Home, sql: Statements, transitions: Sequence[Transition]) -> list[bool]:
    """Write what becomes of jobs, and say of each whether it was still ours to settle."""
    if len({move.id.int for move in transitions}) < len(transitions):
        # In a group that settles a job twice, the first settle counts; so its order matters.
        return [(await _settle(home, sql, [move]))[0] for move in transitions]
    return await _settle(home, sql, transitions)


async def _settle(home: Home, sql: Statements, transitions: Sequence[Transition]) -> list[bool]:
    # In the order of ids, so that two who settle the same jobs cannot wait for each other.
    moves = sorted(transitions, key=_ID)
    successes: list[Transition] = []
    others: list[Transition] = []
    for move in moves:
        (successes if is_plain_success(move) else others).append(move)

    async def send(wire: AsyncWire, _durable: bool) -> Callable[[], Awaitable[set[UUID]]]:
        return await work.send_settles(wire, sql, successes, others)

    refused = await home.hot.carry(send, durable=True, many=bool(successes and others))
    return [not refused or move.id not in refused for move in transitions]


async def checkpoint(home: Home, sql: Statements, added: Sequence[Checkpoint]) -> list[bool]:
    """Add to the logs of jobs' steps, and say of each whether it was still ours to add to."""
    document = checkpoint_document(added)

    async def send(wire: AsyncWire, _durable: bool) -> Callable[[], Awaitable[set[UUID]]]:
        cursor = wire.cursor(binary=True)
        await cursor.execute(sql["checkpoint"], (document,))

        async def collect() -> set[UUID]:
            ((taken,),) = await cursor.fetchall()
            return set(taken)

        return collect

    taken = await home.hot.carry(send, durable=True)
    # Of two fences for one job, at most one holds, and nobody has two of one job at once.
    return [each.id in taken for each in added]
