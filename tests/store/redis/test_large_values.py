"""Payloads and results that have keys of their own: kept as long as their job, and no longer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from tests.support.redis_fixtures import ClockedRedis
from tests.support.redis_indexes import check_indexes
from windlass.core.jobs.job import UniqueKey
from windlass.core.jobs.moves import Verb
from windlass.core.jobs.queries import JobFilter, Retention
from windlass.core.jobs.states import State
from windlass.store.redis.scripting.values import LARGE
from windlass.testing.conformance import Bench
from windlass.testing.conformance.bench import MANY, SECOND, leaving

BIG, BIGGER, SMALL = b"1" * (LARGE + 1), b"2" * 100_000, b"3" * LARGE


def on_bench(clocked: ClockedRedis, check: Callable[[Bench], Awaitable[None]]) -> None:
    async def run() -> None:
        async with clocked.opened() as store:
            await check(Bench(store, clocked, sibling=clocked.opened))
        check_indexes(clocked.run, clocked.prefix)

    asyncio.run(run())


def kept(clocked: ClockedRedis) -> int:
    """Count the large values that do not go by themselves."""
    values = [key for key in clocked.all_keys() if b"}:v:" in key]
    return sum(clocked.run("TTL", key) == -1 for key in values)


def test_a_large_value_is_where_its_job_is(redis_clock: ClockedRedis) -> None:
    async def check(bench: Bench) -> None:
        worker = await bench.worker()
        for payload in (SMALL, BIG, BIGGER):
            job = await bench.start(worker, payload=payload)
            assert job.payload == payload
            assert (await bench.job(job.id)).payload == payload
            assert await bench.leave(job, result=payload)
            ended = await bench.job(job.id)
            assert (ended.payload, ended.result) == (payload, payload)
        (brief,) = (await bench.store.find(JobFilter(), limit=1, brief=True)).jobs
        assert (brief.payload, brief.result) == (b"{}", None)
        assert kept(redis_clock) == 4

    on_bench(redis_clock, check)


def test_a_large_value_goes_with_its_job(redis_clock: ClockedRedis) -> None:
    async def check(bench: Bench) -> None:
        job = await bench.start(payload=BIG)
        assert await bench.leave(job, result=BIGGER)
        other = await bench.start(payload=BIG)
        assert await bench.leave(other, State.DEAD)
        purged = await bench.move(Verb.PURGE, other.id)
        assert purged is not None
        assert purged.payload == BIG
        await bench.advance(10 * SECOND)
        assert await bench.store.prune(Retention(finished=SECOND), MANY) == 1
        assert kept(redis_clock) == 0

    on_bench(redis_clock, check)


def test_a_result_under_a_stale_token_is_not_kept(redis_clock: ClockedRedis) -> None:
    async def check(bench: Bench) -> None:
        job = await bench.start()
        assert await bench.leave(job, result=BIG)
        stale = leaving(job, result=BIGGER)
        assert await bench.store.settle([stale]) == [False]
        assert (await bench.job(job.id)).result == BIG
        assert kept(redis_clock) == 1

    on_bench(redis_clock, check)


def test_a_duplicate_replaces_a_large_payload(redis_clock: ClockedRedis) -> None:
    async def check(bench: Bench) -> None:
        unique = UniqueKey(key="a", until="claimed", on_duplicate="replace")
        first = bench.new(unique=unique, payload=BIG)
        holder = (await bench.store.enqueue([first]))[0].id
        for payload in (BIGGER, SMALL, BIG):
            answer = await bench.add(unique=unique, payload=payload)
            assert (answer.id, answer.is_duplicate) == (holder, True)
            assert (await bench.job(holder)).payload == payload
        await bench.store.enqueue([first])
        assert (await bench.job(holder)).payload == BIG, "the first request came again"
        assert kept(redis_clock) == 1

    on_bench(redis_clock, check)


@pytest.mark.parametrize("payload", [SMALL, BIGGER])
def test_a_large_payload_is_resealed_and_redriven(
    redis_clock: ClockedRedis, payload: bytes
) -> None:
    async def check(bench: Bench) -> None:
        job = await bench.start(payload=BIG)
        assert await bench.leave(job, State.DEAD)
        assert await bench.move(Verb.RESEAL, job.id, payload=payload, before=SMALL) is None
        resealed = await bench.move(Verb.RESEAL, job.id, payload=payload, before=BIG)
        assert resealed is not None
        assert resealed.payload == payload
        redriven = await bench.move(Verb.REDRIVE, job.id, payload=BIG)
        assert redriven is not None
        assert (redriven.payload, redriven.state) == (BIG, State.PENDING)
        assert kept(redis_clock) == 1

    on_bench(redis_clock, check)


def test_many_large_payloads_are_claimed_in_pieces(redis_clock: ClockedRedis) -> None:
    async def check(bench: Bench) -> None:
        jobs = [bench.new(payload=b"%d" % number * 5_000) for number in range(1, 301)]
        await bench.store.enqueue(jobs)
        worker = await bench.worker()
        claimed = await bench.claim(worker)
        assert [job.payload for job in claimed] == [job.payload for job in jobs]
        await bench.store.settle([leaving(job, result=job.payload) for job in claimed])
        await bench.advance(timedelta(hours=1))
        assert kept(redis_clock) == 600

    on_bench(redis_clock, check)
