"""What can go is listed in pages and deleted in pieces, across queues and beside other changes."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.support.redis_fixtures import CLOCK, ClockedRedis
from tests.support.redis_indexes import check_indexes
from windlass.core.jobs.job import IDEMPOTENCY_KEY, Job, Saga
from windlass.core.jobs.moves import Verb
from windlass.core.jobs.queries import JobFilter, Retention
from windlass.core.jobs.states import State
from windlass.store.redis import RedisStore
from windlass.store.redis import prune as pruning
from windlass.store.redis.scripting.rows import micros
from windlass.store.redis.scripting.script_files import load_scripts
from windlass.testing.conformance import Bench
from windlass.testing.conformance.bench import DAY, HOUR, MANY, SECOND

FOREVER = Retention(finished=None)


async def ended_jobs(bench: Bench, queues: list[str], **fields: Any) -> list[Job]:
    """Complete a job in each of these queues, a second after each other."""
    jobs = []
    for queue in queues:
        job = await bench.start(queue=queue, **fields)
        assert await bench.leave(job)
        await bench.advance(SECOND)
        jobs.append(job)
    return jobs


def died(job: Job) -> datetime:
    assert job.finished_at is not None
    return job.finished_at


async def left(store: RedisStore) -> list[object]:
    found = await store.find(JobFilter(), limit=MANY, oldest_first=True)
    return [job.id for job in found.jobs]


def test_no_more_finished_jobs_are_kept_than_the_setting_says(redis_clock: ClockedRedis) -> None:
    async def main() -> None:
        store = RedisStore(redis_clock.url, kept=3, scripts=load_scripts(clock=CLOCK))
        bench = Bench(store, redis_clock)
        jobs = await ended_jobs(bench, [f"q{number % 3}" for number in range(8)])
        assert await store.prune(FOREVER, 2) == 2
        assert await store.prune(FOREVER, MANY) == 3
        assert await store.prune(FOREVER, MANY) == 0
        assert await left(store) == [job.id for job in jobs[5:]]
        await store.close()

    asyncio.run(main())


@pytest.mark.parametrize("limit", [1, 2, 5, MANY])
@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_the_oldest_jobs_go_first_however_they_are_spread_over_queues(
    redis_clock: ClockedRedis, monkeypatch: pytest.MonkeyPatch, limit: int, at_once: int
) -> None:
    """Prevents: only the first page of each queue is known, and younger jobs behind it are not."""
    monkeypatch.setattr(pruning, "_DELETED_AT_ONCE", at_once)
    monkeypatch.setattr(pruning, "_COMMANDS_AT_ONCE", at_once)
    order = [*"aaaaabacaaadbbccbda", *"eeefe"]

    async def main() -> None:
        store = RedisStore(redis_clock.url, kept=6, scripts=load_scripts(clock=CLOCK))
        jobs = await ended_jobs(Bench(store, redis_clock), order)
        while len(expected := await left(store)) > 6:
            pruned = await store.prune(FOREVER, limit)
            assert pruned == min(limit, len(expected) - 6)
            assert await left(store) == [job.id for job in jobs][-len(expected) + pruned :]
        assert await store.prune(FOREVER, limit) == 0
        check_indexes(redis_clock.run, redis_clock.prefix)
        await store.close()

    asyncio.run(main())


def test_age_and_number_together(redis_clock: ClockedRedis) -> None:
    """Jobs past their retention go although fewer are kept, and jobs in excess although younger."""

    async def main() -> None:
        store = RedisStore(redis_clock.url, kept=4, scripts=load_scripts(clock=CLOCK))
        bench = Bench(store, redis_clock)
        old = await ended_jobs(bench, [*"abab"])
        await bench.advance(HOUR)
        young = await ended_jobs(bench, [*"bacbca"])
        assert await store.prune(Retention(finished=DAY), MANY) == 6
        assert await left(store) == [job.id for job in young[2:]]
        old = young[2:]
        await bench.advance(HOUR)
        young = await ended_jobs(bench, ["a"])
        assert await store.prune(Retention(finished=HOUR), MANY) == len(old)
        assert await left(store) == [young[0].id]
        await store.close()

    asyncio.run(main())


def test_dead_jobs_that_stay_do_not_hide_those_behind_them(
    redis_clock: ClockedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: a page of jobs that a person has to handle ends every prune."""
    monkeypatch.setattr(pruning, "_DELETED_AT_ONCE", 2)

    async def main() -> None:
        async with redis_clock.opened() as store:
            bench = Bench(store, redis_clock)
            for saga in [Saga.UNDOING] * 3 + [None] * 5:
                job = await bench.start()
                assert await bench.leave(job, State.DEAD, saga=saga)
            await bench.advance(DAY)
            kept = Retention(dead=HOUR)
            assert await store.prune(kept, 3) == 3
            assert await store.prune(kept, MANY) == 2
            assert len(await left(store)) == 3
            check_indexes(redis_clock.run, redis_clock.prefix)

    asyncio.run(main())


def test_a_job_that_died_again_after_it_was_listed_is_kept(redis_clock: ClockedRedis) -> None:
    """Prevents: its retention counted from its first death, and a redrive was lost."""

    async def main() -> None:
        async with redis_clock.opened() as store:
            bench = Bench(store, redis_clock)
            dead = await bench.job_in(State.DEAD)
            listed = (micros(died(dead)), dead.id.bytes, dead.queue.encode())
            await bench.advance(DAY)
            for again in (State.RUNNING, State.DEAD):
                if again is State.RUNNING:
                    assert await bench.move(Verb.REDRIVE, dead.id) is not None
                    job = await bench.start_again(dead.id)
                else:
                    assert await bench.leave(job, State.DEAD)
                assert await store._talk(pruning.delete(store._names, "D:", [listed])) == 0
                assert await bench.state(dead.id) is again
            check_indexes(redis_clock.run, redis_clock.prefix)
            assert await store.prune(Retention(dead=HOUR), MANY) == 0
            await bench.advance(DAY)
            assert await store.prune(Retention(dead=HOUR), MANY) == 1

    asyncio.run(main())


def test_all_spent_idempotency_keys_go_in_one_prune(
    redis_clock: ClockedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: where jobs go by their number, a prune deleted one page of keys, and no more."""
    monkeypatch.setattr(pruning, "_DELETED_AT_ONCE", 3)

    async def main() -> None:
        store = RedisStore(redis_clock.url, kept=0, scripts=load_scripts(clock=CLOCK))
        bench = Bench(store, redis_clock)
        for number in range(10):
            await ended_jobs(bench, ["a"], headers={IDEMPOTENCY_KEY: str(number)})
        assert await store.prune(Retention(finished=DAY), MANY) == 10
        await bench.advance(DAY + timedelta(minutes=1))
        assert await store.prune(Retention(finished=DAY), MANY) == 10
        assert await store.prune(Retention(finished=DAY), MANY) == 0
        await store.close()

    asyncio.run(main())
