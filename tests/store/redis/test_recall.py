"""A recall reads lanes one after the other, while producers go on: their jobs stay in place."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from tests.support.redis_fixtures import ClockedRedis
from windlass.store.redis.scripting.calls import Talk
from windlass.store.redis.store import RedisStore
from windlass.store.redis.upkeep import recall
from windlass.testing.conformance import Bench
from windlass.testing.conformance.bench import HOUR, MINUTE

NO_TIME = timedelta(0)


def slowly(store: RedisStore, redis_clock: ClockedRedis, arriving: Bench) -> Talk[int]:
    """Recall as at the start of a worker; a job arrives after the sweep, a minute later."""
    talk = recall.recall(store._names, NO_TIME, NO_TIME)
    replies = yield next(talk)
    redis_clock.set(redis_clock() + MINUTE)
    store.enqueue_blocking([arriving.new()], timeout=MINUTE)
    try:
        while True:
            replies = yield talk.send(replies)
    except StopIteration as ended:
        return int(ended.value)


def test_a_job_that_arrives_during_a_recall_is_not_taken_for_one_ahead_of_the_clock(
    redis_clock: ClockedRedis,
) -> None:
    """Prevents: it overtook the jobs of its key that were enqueued just before it."""

    async def main() -> None:
        async with redis_clock.opened() as store:
            bench = Bench(store, redis_clock)
            await bench.enqueue()
            assert await store._talk(slowly(store, redis_clock, bench)) == 0
            await bench.enqueue()
            await bench.advance(-HOUR)
            assert await store.recall(NO_TIME, NO_TIME) == 3

    asyncio.run(main())
