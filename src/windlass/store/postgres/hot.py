"""Owns what goes by the hot line: sweeps, claims, settles and steps, and how answers are read."""

from __future__ import annotations

import time
from collections.abc import Sequence
from operator import attrgetter
from uuid import UUID

from windlass.core.job import Checkpoint, Claim, Job, Sweep
from windlass.core.settle import Transition
from windlass.store.postgres import work
from windlass.store.postgres.exchange import Answer, Query
from windlass.store.postgres.home import Home
from windlass.store.postgres.rows import checkpoint_document, is_plain_success
from windlass.store.postgres.work import Statements

_ID = attrgetter("id.int")


async def sweep(home: Home, sql: Statements) -> Sweep:
    """Look at the heads of all lanes, and let the home know them."""
    mark = home.ear.mark

    query = Query(sql["sweep"])
    rows = await home.hot.carry(lambda _: [query], lambda answers: answers[0].rows())
    sweep, heads, cost = work.swept(rows, mark)
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
    rows = await home.hot.carry(
        lambda durable: [Query(sql["claim"], (*values, "f" if durable else "t"))],
        lambda answers: answers[0].rows(),
        heavy=True,
    )
    answers = work.met(claim, rows, worker, token)
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
    queries = work.settle_queries(sql, successes, others)
    refused = await home.hot.carry(
        lambda _: queries,
        lambda answers: work.refused(answers, successes, others),
        durable=True,
    )
    return [not refused or move.id not in refused for move in transitions]


async def checkpoint(home: Home, sql: Statements, added: Sequence[Checkpoint]) -> list[bool]:
    """Add to the logs of jobs' steps, and say of each whether it was still ours to add to."""
    query = Query(sql["checkpoint"], (checkpoint_document(added),))

    def read(answers: Sequence[Answer]) -> set[UUID]:
        ((taken,),) = answers[0].rows()
        return set(taken)

    taken = await home.hot.carry(lambda _: [query], read, durable=True)
    # Of two fences for one job, at most one holds, and nobody has two of one job at once.
    return [each.id in taken for each in added]
