"""Claims and settles of jobs from many queues: several scripts, and an answer for every job."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from tests.support.redis_fixtures import ClockedRedis
from tests.support.redis_indexes import check_indexes
from windlass.core.claims.lanes import Ask, Claim
from windlass.core.jobs.job import Job
from windlass.core.jobs.states import State
from windlass.store.redis import RedisStore, claim_and_settle
from windlass.store.redis.connections.script import Command
from windlass.store.redis.scripting.calls import apump
from windlass.testing.conformance import Bench
from windlass.testing.conformance.bench import leaving

QUEUES = 150
LARGE = b'"' + b"x" * 2_000 + b'"'
Check = Callable[[RedisStore, Bench, str], Awaitable[None]]


def run(clocked: ClockedRedis, check: Check) -> None:
    async def main() -> None:
        async with clocked.opened() as store:
            bench = Bench(store, clocked)
            await check(store, bench, await bench.worker())
        check_indexes(clocked.run, clocked.prefix)

    asyncio.run(main())


async def claim_of_all(store: RedisStore, *, each: int, slots: int) -> Claim:
    """Return a claim with an ask for so many jobs of every queue, in the order of their names."""
    heads = sorted((await store.sweep()).heads, key=lambda head: head.lane.queue)
    asks = tuple(Ask(lane=head.lane, count=each, draws=("slots",)) for head in heads)
    return Claim(asks=asks, budgets={"slots": slots})


async def started_in_all(store: RedisStore, bench: Bench, worker: str) -> list[Job]:
    """Start a job of every queue."""
    await store.enqueue([bench.new(queue=f"q{n:03}") for n in range(QUEUES)])
    return await bench.claim_all(worker, await claim_of_all(store, each=1, slots=QUEUES))


def noted(store: RedisStore, calls: list[Command]) -> Callable[..., Awaitable[list[Any]]]:
    """Return what runs commands on the store's own connection, and notes the last of each write."""

    async def run(*commands: Command, **how: Any) -> list[Any]:
        calls.append(commands[-1])
        return await store._connections.here().run(*commands, **how)

    return run


def test_a_claim_of_many_queues_is_met_in_order_by_several_scripts(
    redis_clock: ClockedRedis,
) -> None:
    """Prevents: a script that holds the server for as long as all lanes of a claim take."""

    async def check(store: RedisStore, bench: Bench, worker: str) -> None:
        new = [bench.new(queue=f"q{n:03}") for n in range(QUEUES) for _ in range(2)]
        await store.enqueue(new)
        claim = await claim_of_all(store, each=2, slots=len(new) - 3)
        calls: list[Command] = []
        talk = claim_and_settle.claim(store._names, claim, worker, 7)
        jobs = await apump(talk, noted(store, calls))
        assert [job.id for job in jobs] == [job.id for job in new[:-3]]
        assert len(calls) >= 4
        assert len(await bench.claim_all(worker, claim)) == 3

    run(redis_clock, check)


def test_the_rest_of_many_queues_comes_from_those_that_have_more(
    redis_clock: ClockedRedis,
) -> None:
    """Prevents: a deep queue is passed over as empty in the place of a shallow one."""

    async def check(store: RedisStore, bench: Bench, worker: str) -> None:
        depths = {f"q{n:03}": 4 if n % 3 else 1 for n in range(QUEUES)}
        new = [bench.new(queue=queue) for queue, depth in depths.items() for _ in range(depth)]
        await store.enqueue(new)
        shares = await claim_of_all(store, each=2, slots=300)
        rest = await claim_of_all(store, each=4, slots=300)
        claim = Claim(asks=(*shares.asks, *rest.asks), budgets=shares.budgets)
        jobs = await bench.claim_all(worker, claim)
        # The first two of every queue are 250, and the last 50 are the rest of 25 queues.
        deep = [queue for queue, depth in depths.items() if depth == 4][:25]
        expected = {queue: min(depth, 4 if queue in deep else 2) for queue, depth in depths.items()}
        assert Counter(job.queue for job in jobs) == expected

    run(redis_clock, check)


def test_no_script_is_sent_for_asks_that_no_slot_is_left_for(redis_clock: ClockedRedis) -> None:
    async def check(store: RedisStore, bench: Bench, worker: str) -> None:
        await store.enqueue([bench.new(queue=f"q{n:03}") for n in range(QUEUES)])
        claim = await claim_of_all(store, each=1, slots=10)
        calls: list[Command] = []
        talk = claim_and_settle.claim(store._names, claim, worker, 7)
        assert (len(await apump(talk, noted(store, calls))), len(calls)) == (10, 1)

    run(redis_clock, check)


def test_a_settle_of_many_queues_answers_for_every_job_in_order(redis_clock: ClockedRedis) -> None:
    """Prevents: a shorter answer of a script that reached its bound, read as one for all."""

    async def check(store: RedisStore, bench: Bench, worker: str) -> None:
        jobs = await started_in_all(store, bench, worker)
        stale = set(range(0, QUEUES, 7))
        moves = [leaving(job, token=1 if n in stale else job.token) for n, job in enumerate(jobs)]
        twice = [*moves, *moves[:20]]
        calls: list[Command] = []
        moved = await apump(claim_and_settle.settle(store._names, twice), noted(store, calls))
        assert moved == [n not in stale for n in range(QUEUES)] + [False] * 20
        assert len(calls) >= 2

    run(redis_clock, check)


def test_results_of_many_queues_are_all_kept(redis_clock: ClockedRedis) -> None:
    async def check(store: RedisStore, bench: Bench, worker: str) -> None:
        jobs = await started_in_all(store, bench, worker)
        results = [LARGE if n % 2 else f"{n}".encode() for n in range(QUEUES)]
        moves = [leaving(job, result=it) for job, it in zip(jobs, results, strict=True)]
        moves[5] = leaving(jobs[5], State.DEAD)
        calls: list[Command] = []
        assert all(await apump(claim_and_settle.settle(store._names, moves), noted(store, calls)))
        assert len(calls) >= 2
        found = await store.get_many([job.id for job in jobs])
        kept = [found[job.id].result for job in jobs]
        assert kept == [*results[:5], None, *results[6:]]

    run(redis_clock, check)


def test_a_settle_of_one_queue_is_one_script(redis_clock: ClockedRedis) -> None:
    async def check(store: RedisStore, bench: Bench, worker: str) -> None:
        most = claim_and_settle._SETTLED_AT_ONCE
        await store.enqueue([bench.new() for _ in range(most)])
        jobs = await bench.claim(worker, most=most)
        calls: list[Command] = []
        talk = claim_and_settle.settle(store._names, [leaving(job) for job in jobs])
        assert all(await apump(talk, noted(store, calls)))
        assert len(jobs) == most
        assert len(calls) == 1

    run(redis_clock, check)
