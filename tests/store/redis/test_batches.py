"""Batches and unparks that are too large for one script: committed as a whole, done in pieces."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.redis_fixtures import ClockedRedis
from tests.support.redis_indexes import check_indexes
from windlass.core.changes import Changes
from windlass.core.errors import StoreUnavailable
from windlass.core.jobs.job import NewJob, UniqueKey
from windlass.core.jobs.states import State
from windlass.store.redis import RedisStore, enqueue
from windlass.store.redis.enqueue import ANY_AT_ONCE, PLAIN_AT_ONCE, PLAIN_OVERLAPPING
from windlass.store.redis.scripting.calls import Names, Talk, apump
from windlass.testing.conformance import Bench
from windlass.testing.conformance.bench import MINUTE

COUNT = 3 * ANY_AT_ONCE + 7


def batch(bench: Bench) -> list[NewJob]:
    """Return jobs of which most wait for the first."""
    return [bench.new(waiting_for="flow:1" if number else None) for number in range(COUNT)]


async def counts(store: RedisStore) -> dict[State, int]:
    return {count.state: count.count for count in await store.counts()}


async def drop_out(store: RedisStore, talk: Talk[Any], script: str) -> None:
    """Carry on a talk up to the first call of a script, as a producer that dies then."""
    names: Names = store._names
    commands = next(talk)
    while commands[-1][0] is not names.scripts[script]:
        commands = talk.send(await store._connections.here().run(*commands))
    talk.close()


async def drained(store: RedisStore, limit: int = 1_000) -> None:
    while (await store.sweep()).next_due is not None:
        await store.promote(limit)


def run(clocked: ClockedRedis, check: Any) -> None:
    async def main() -> None:
        async with clocked.opened() as store:
            await check(store, Bench(store, clocked))
        check_indexes(clocked.run, clocked.prefix)

    asyncio.run(main())


def test_results_are_in_the_order_of_the_jobs(redis_clock: ClockedRedis) -> None:
    async def check(store: RedisStore, bench: Bench) -> None:
        jobs = batch(bench)
        unique = UniqueKey(key="one")
        jobs[5:5] = [bench.new(unique=unique), bench.new(unique=unique, waiting_for="flow:1")]
        answers = await store.enqueue(jobs)
        held = {job.id for job in jobs if job.unique}
        assert [a.id for a in answers if a.id not in held] == [
            job.id for job in jobs if not job.unique
        ]
        assert [a.is_duplicate for a in answers].count(True) == 1
        assert await store.enqueue(jobs) == answers, "a repetition adds nothing"

    run(redis_clock, check)


def test_a_batch_that_was_not_committed_adds_nothing(redis_clock: ClockedRedis) -> None:
    async def check(store: RedisStore, bench: Bench) -> None:
        await drop_out(store, enqueue.enqueue(store._names, batch(bench)), "commit")
        await bench.advance(MINUTE)
        await store.promote(1_000)
        assert await counts(store) == {}

    run(redis_clock, check)


def test_a_worker_carries_out_what_a_dead_producer_has_committed(
    redis_clock: ClockedRedis,
) -> None:
    async def check(store: RedisStore, bench: Bench) -> None:
        await drop_out(store, enqueue.enqueue(store._names, batch(bench)), "carry_out")
        assert await counts(store) == {}
        await bench.advance(MINUTE)
        await drained(store)
        assert await counts(store) == {State.SCHEDULED: COUNT - 1, State.PENDING: 1}

    run(redis_clock, check)


def test_pieces_that_are_gone_are_not_waited_for(redis_clock: ClockedRedis) -> None:
    """Prevents: a worker that tries the same batch for ever."""

    async def check(store: RedisStore, bench: Bench) -> None:
        await drop_out(store, enqueue.enqueue(store._names, batch(bench)), "carry_out")
        for key in redis_clock.all_keys():
            if b"}:stage:" in key:
                redis_clock.run("DEL", key)
        await bench.advance(MINUTE)
        await drained(store)
        assert await counts(store) == {}

    run(redis_clock, check)


def test_a_batch_whose_pieces_expired_is_refused(redis_clock: ClockedRedis) -> None:
    async def check(store: RedisStore, bench: Bench) -> None:
        talk = enqueue.enqueue(store._names, batch(bench))
        here = store._connections.here()
        commands: Sequence[Any] = next(talk)
        while commands[-1][0] is not store._names.scripts["commit"]:
            commands = talk.send(await here.run(*commands))
        redis_clock.run("DEL", next(key for key in redis_clock.all_keys() if b"}:stage:" in key))
        with pytest.raises(StoreUnavailable, match="nothing was added"):
            talk.send(await here.run(*commands))
        assert await counts(store) == {}

    run(redis_clock, check)


def test_thousands_are_unparked_in_pieces(redis_clock: ClockedRedis) -> None:
    async def check(store: RedisStore, bench: Bench) -> None:
        await store.enqueue(batch(bench))
        changes = Changes(answer=None, unpark=["flow:1", "flow:2"])
        await store.apply([], lambda _records, _now: changes)
        assert await counts(store) == {State.PENDING: COUNT}
        assert (await store.sweep()).next_due is None

    run(redis_clock, check)


def test_plain_jobs_keep_their_order_over_pieces(redis_clock: ClockedRedis) -> None:
    async def check(store: RedisStore, bench: Bench) -> None:
        jobs = [bench.new() for _ in range(2 * PLAIN_AT_ONCE + 3)]
        await store.enqueue(jobs)
        claimed = await bench.claim(await bench.worker())
        assert [job.id for job in claimed] == [job.id for job in jobs]
        assert await store.enqueue([bench.new(), *jobs[:PLAIN_AT_ONCE]])
        assert await counts(store) == {State.RUNNING: len(jobs), State.PENDING: 1}

    run(redis_clock, check)


def test_pieces_are_smaller_where_several_are_under_way(redis_clock: ClockedRedis) -> None:
    async def check(store: RedisStore, bench: Bench) -> None:
        run, sizes = store._connections.here().run, []

        async def noted(*commands: Any) -> Any:
            sizes.append(commands[-1][4])
            return await run(*commands)

        def new() -> list[NewJob]:
            return [bench.new() for _ in range(PLAIN_AT_ONCE + 1)]

        await apump(enqueue.enqueue(store._names, new()), noted)
        assert sizes == [PLAIN_AT_ONCE, 1]
        sizes.clear()
        jobs = new()
        places = await apump(enqueue.reserve(store._names, len(jobs)), run)
        for talk in enqueue.reserved_pieces(store._names, jobs, places):
            await apump(talk, noted)
        assert sizes == [PLAIN_OVERLAPPING, PLAIN_OVERLAPPING, 1]

    run(redis_clock, check)
