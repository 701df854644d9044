"""Records are exact, however many change them at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import datetime

from tests.support.redis_fixtures import ClockedRedis
from windlass.core.changes import Changes
from windlass.core.records import Json
from windlass.store.redis import RedisStore

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
