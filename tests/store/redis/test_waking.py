"""Sleepers are woken by name, for lanes that they serve, and hear which lane it is."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.support.app_on_store import until
from tests.support.redis_fixtures import ClockedRedis
from windlass.core.jobs.job import Lane, NewJob
from windlass.core.workers import WorkerInfo
from windlass.store.redis import RedisStore, sleepers
from windlass.testing.conformance import Bench
from windlass.testing.conformance.bench import HOUR, LEASE, MINUTE

PATIENCE = 30.0


async def serve(store: RedisStore, worker: str, **fields: Any) -> None:
    info = WorkerInfo(
        id=worker, name=worker, host="here", pid=1, release="1", lease=LEASE, slots=4, **fields
    )
    await store.register(info)
    await until(lambda: store.listening)


async def asleep(store: RedisStore) -> asyncio.Task[None]:
    """Let a store wait, and return once it is listed as a sleeper."""
    state = store._here()
    while True:
        mark = (await store.sweep()).mark
        waiter = asyncio.create_task(store.wait(mark, HOUR))
        await asyncio.wait({waiter}, timeout=0.05)
        if not waiter.done() and state._listed is not None:
            return waiter


def run(clocked: ClockedRedis, check: Any, stores: int) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            opened = [await stack.enter_async_context(clocked.opened()) for _ in range(stores + 1)]
            async with asyncio.timeout(PATIENCE):
                await check(Bench(opened[0], clocked), *opened[1:])

    asyncio.run(main())


def test_only_a_sleeper_that_serves_the_lane_is_woken(redis_clock: ClockedRedis) -> None:
    async def check(bench: Bench, mail: RedisStore, report: RedisStore, slow: RedisStore) -> None:
        await serve(mail, "mail", kinds=("send",), excluded=("slow",))
        await serve(report, "report", kinds=("report",))
        await serve(slow, "slow", queues=("slow",))
        waiters = [await asleep(store) for store in (mail, report, slow)]
        for fields, woken in (
            ({"kind": "report"}, 1),
            ({"kind": "send", "queue": "slow"}, 2),
            ({"kind": "send"}, 0),
        ):
            await bench.enqueue(**fields)
            done, _ = await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
            assert done == {waiters[woken]}
            waiters[woken] = await asleep((mail, report, slow)[woken])
        for waiter in waiters:
            waiter.cancel()

    run(redis_clock, check, 3)


def test_one_job_wakes_one_of_several_sleepers(redis_clock: ClockedRedis) -> None:
    async def check(bench: Bench, first: RedisStore, second: RedisStore) -> None:
        waiters = []
        for number, store in enumerate((first, second)):
            await serve(store, f"w{number}", kinds=("work",))
            waiters.append(await asleep(store))
        await bench.enqueue()
        done, asleep_still = await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
        assert len(done) == len(asleep_still) == 1
        await bench.enqueue()
        await asyncio.wait(waiters)

    run(redis_clock, check, 2)


def test_a_woken_worker_knows_the_lane_without_a_sweep(redis_clock: ClockedRedis) -> None:
    async def check(bench: Bench, store: RedisStore) -> None:
        await serve(store, "w", kinds=("work",))
        waiter = await asleep(store)
        await bench.enqueue(kind="work", queue="mail", priority=3)
        await waiter
        believed = await store.sweep(fresh=False)
        assert [head.lane for head in believed.heads] == [Lane("mail", "work", 3)]

    run(redis_clock, check, 1)


def test_a_dead_sleeper_is_passed_over(redis_clock: ClockedRedis) -> None:
    async def check(bench: Bench, store: RedisStore) -> None:
        await serve(store, "w", kinds=("work",))
        waiter = await asleep(store)
        group = store._here()._group
        key = f"{{{redis_clock.prefix}}}:z:{group.decode()}"
        redis_clock.run("SADD", key, *(f"dead-{number}" for number in range(20)))
        await bench.enqueue()
        await waiter

    run(redis_clock, check, 1)


def test_a_job_that_is_due_before_all_others_wakes_a_sleeper(redis_clock: ClockedRedis) -> None:
    async def check(bench: Bench, store: RedisStore) -> None:
        await bench.enqueue(due=HOUR)
        await serve(store, "w", kinds=("work",))
        waiter = await asleep(store)
        await bench.enqueue(due=2 * HOUR)
        done, _ = await asyncio.wait({waiter}, timeout=0.1)
        assert not done
        await bench.enqueue(due=MINUTE)
        await waiter
        assert (await store.sweep(fresh=False)).next_due == bench.now() + MINUTE

    run(redis_clock, check, 1)


def test_a_busy_worker_is_not_woken(redis_clock: ClockedRedis) -> None:
    async def check(bench: Bench, busy: RedisStore, idle: RedisStore) -> None:
        for number, store in enumerate((busy, idle)):
            await serve(store, f"w{number}", kinds=("work",))
        (await asleep(busy)).cancel()
        await busy.busy()
        waiter = await asleep(idle)
        await bench.enqueue()
        await waiter

    run(redis_clock, check, 2)


def test_thousands_of_lanes_are_swept_page_by_page(redis_clock: ClockedRedis) -> None:
    async def check(bench: Bench) -> None:
        jobs: list[NewJob] = [bench.new(key=f"k{number}") for number in range(2_100)]
        await bench.store.enqueue(jobs)
        heads = (await bench.store.sweep()).heads
        assert {head.lane.key for head in heads} == {job.key for job in jobs}
        assert len(heads) == len(jobs)

    run(redis_clock, check, 0)


def groups(clocked: ClockedRedis) -> list[bytes]:
    return [key for key in clocked.all_keys() if b":z:" in key]


def test_an_enqueue_passes_over_a_limited_number_of_dead_sleepers(
    redis_clock: ClockedRedis,
) -> None:
    """Prevents: a script that blocks the server for as long as processes have died before it."""

    async def check(bench: Bench, store: RedisStore) -> None:
        await serve(store, "w", kinds=("work",))
        waiter = await asleep(store)
        (group,) = groups(redis_clock)
        dead = 1_000
        redis_clock.run("SADD", group, *range(dead))
        redis_clock.run("SREM", group, store._here().connections.sleeper)
        await bench.enqueue()
        assert redis_clock.run("SCARD", group) >= dead - 100
        waiter.cancel()

    run(redis_clock, check, 1)


def test_the_store_forgets_sleepers_that_are_not_listed_again(
    redis_clock: ClockedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(bench: Bench, store: RedisStore) -> None:
        await serve(store, "w", kinds=("work",))
        waiter = await asleep(store)
        (group,) = groups(redis_clock)
        assert 0 < redis_clock.run("TTL", group) <= 86_400
        waiter.cancel()
        redis_clock.run("DEL", group)
        monkeypatch.setattr(sleepers, "_LISTED_SECONDS", -1.0)
        waiter = await asleep(store)
        await bench.enqueue()
        await waiter

    run(redis_clock, check, 1)
