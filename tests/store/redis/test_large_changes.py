"""Changes with many jobs: more than fit a command, more queues than a call promotes, known ids."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.redis_fixtures import ClockedRedis
from tests.support.redis_indexes import check_indexes
from windlass.core.changes import Changes
from windlass.core.claims.lanes import Ask, Claim
from windlass.core.jobs.job import Lane
from windlass.testing.conformance import Bench
from windlass.testing.conformance.bench import HOUR, MANY, MINUTE


def test_a_change_with_thousands_of_new_jobs_is_whole(redis_clock: ClockedRedis) -> None:
    """Prevents: Lua passes 8,000 values to a command at most, and fails after its first write."""

    async def main() -> None:
        async with redis_clock.opened() as store:
            bench = Bench(store, redis_clock)
            new = [bench.new() for _ in range(5_000)]
            changes = Changes(answer=None, records={"x": {"a": 1}}, enqueue=new)
            await store.apply(["x"], lambda _, __: changes)
            counted = await store.counts()
            assert [each.count for each in counted] == [5_000]
            assert await store.records("x") == {"x": {"a": 1}}
            claimed = await bench.claim(await bench.worker(), most=5_000)
            assert [job.id for job in claimed] == [job.id for job in new]

    asyncio.run(main())


def test_jobs_of_more_queues_than_a_call_promotes_are_promoted(redis_clock: ClockedRedis) -> None:
    async def main() -> None:
        async with redis_clock.opened() as store:
            bench = Bench(store, redis_clock)
            await store.enqueue([bench.new(queue=f"q{n}", due=MINUTE) for n in range(60)])
            await store.enqueue([bench.new(due=MINUTE) for _ in range(60)])
            await store.enqueue([bench.new(queue="later", due=2 * HOUR)])
            await bench.advance(HOUR)
            assert await store.promote(70) == 70
            assert await store.promote(MANY) == 50
            assert await store.promote(MANY) == 0
            check_indexes(redis_clock.run, redis_clock.prefix)

    asyncio.run(main())


@pytest.mark.parametrize("size", [30, 120])
def test_a_batch_keeps_its_order_although_some_of_its_jobs_are_known(
    redis_clock: ClockedRedis, size: int
) -> None:
    """Prevents: the numbers of known jobs are given to others, or those of two batches cross."""

    async def main() -> None:
        async with redis_clock.opened() as store:
            bench = Bench(store, redis_clock)
            worker = await bench.worker()
            jobs = [bench.new(headers={"n": str(n)}, expires=HOUR) for n in range(size)]
            await store.enqueue(jobs[:3])
            await store.enqueue([jobs[1], *jobs])
            later = [bench.new() for _ in range(3)]
            await store.enqueue(later)
            ask = Ask(lane=Lane("default", "work"), count=MANY)
            claimed = await bench.claim_all(worker, Claim(asks=(ask,)))
            assert [job.id for job in claimed] == [job.id for job in (*jobs, *later)]

    asyncio.run(main())
