"""Records are exact, however many change them at once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from datetime import datetime

from tests.support.redis_fixtures import ClockedRedis
from windlass.core.changes import Changes
from windlass.core.records import Json
from windlass.store.redis import RedisStore
from windlass.store.redis.records import Seen, pause

STORES, TASKS, CHANGES = 4, 4, 25


def test_no_change_of_sixteen_contenders_is_lost(redis_clock: ClockedRedis) -> None:
    def count(records: Mapping[str, Json], _now: datetime) -> Changes[int]:
        number = records.get("count", {"n": 0})["n"] + 1
        return Changes(answer=number, records={"count": {"n": number}})

    async def contend(store: RedisStore) -> list[int]:
        return [(await store.apply(["count"], count)).answer for _ in range(CHANGES)]

    async def main() -> None:
        async with AsyncExitStack() as stack:
            opened = [await stack.enter_async_context(redis_clock.opened()) for _ in range(STORES)]
            answers = await asyncio.gather(*[contend(store) for store in opened * TASKS])
            total = STORES * TASKS * CHANGES
            seen = sorted(number for numbers in answers for number in numbers)
            assert seen == list(range(1, total + 1))
            assert await opened[0].records("count") == {"count": {"n": total}}

    asyncio.run(main())


def test_a_spoiled_change_is_repeated_with_the_records_of_the_refusal(
    redis_clock: ClockedRedis,
) -> None:
    # To read them again would take another call, in which somebody else could change them: of
    # sixteen contenders, one in a hundred had to wait for 56 ms.
    seen: list[int] = []
    elsewhere = 0

    async def write(number: int) -> None:
        changes: Changes[None] = Changes(answer=None, records={"count": {"n": number}})
        async with redis_clock.opened() as store:
            await store.apply(["count"], lambda _records, _now: changes)

    def spoiled(records: Mapping[str, Json], _now: datetime) -> Changes[None]:
        nonlocal elsewhere
        seen.append(records["count"]["n"])
        if len(seen) == 1:
            before = calls(redis_clock)
            with ThreadPoolExecutor() as thread:
                thread.submit(asyncio.run, write(2)).result()
            elsewhere = calls(redis_clock) - before
        return Changes(answer=None, records={"count": {"n": 10 * seen[-1]}})

    async def main() -> int:
        await write(1)
        async with redis_clock.opened() as store:
            await store.records("count")
            before = calls(redis_clock)
            await store.apply(["count"], spoiled)
            took = calls(redis_clock) - before
            assert await store.records("count") == {"count": {"n": 20}}
            return took

    took = asyncio.run(main())
    assert seen == [1, 2]
    assert took - elsewhere == 3  # One that reads, and two tries.


def calls(clocked: ClockedRedis) -> int:
    """Return how many scripts were called on the server so far."""
    info = clocked.run("INFO", "commandstats").decode()
    return sum(map(int, re.findall(r"cmdstat_eval(?:sha)?:calls=(\d+)", info)))


def test_records_that_were_seen_before_a_pause_are_not_used_after_it() -> None:
    # Others change them meanwhile: a caller that goes on with them is refused after every pause,
    # and once waited for five seconds while three others changed a record.
    async def main() -> list[int]:
        seen = Seen(now=0, records=[])
        kept = [await pause(attempt, seen) for attempt in range(12)]
        return [attempt for attempt, each in enumerate(kept) if each is None]

    assert asyncio.run(main()) == [4, 8]
