"""A large batch of plain jobs goes by several calls at a time, and keeps its order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.store.redis.test_waking import run, serve
from tests.support.redis_fixtures import ClockedRedis
from tests.support.redis_indexes import check_indexes
from windlass.core.claims.lanes import Ask, Claim
from windlass.core.errors import StoreUnavailable
from windlass.core.jobs.job import Lane, NewJob
from windlass.store.redis import RedisStore
from windlass.store.redis import enqueue as enqueueing
from windlass.store.redis.scripting.calls import overlapped
from windlass.testing.conformance import Bench
from windlass.testing.conformance.bench import SECOND

MANY = 5 * enqueueing.PLAIN_AT_ONCE + 7


async def claim_all(store: RedisStore, bench: Bench) -> list[Any]:
    await serve(store, "w", kinds=("work",))
    ask = Ask(lane=Lane("default", "work", 0), count=2 * MANY, draws=("slots",))
    claim = Claim(asks=(ask,), budgets={"slots": 2 * MANY})
    return [job.id for job in await store.claim(claim, worker="w", token=1)]


def reversed_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the pieces of a batch reach the server in the opposite order."""
    pieces = enqueueing.reserved_pieces

    def backwards(*arguments: Any) -> Any:
        return list(pieces(*arguments))[::-1]

    monkeypatch.setattr(enqueueing, "reserved_pieces", backwards)


def test_jobs_keep_their_order_whatever_the_order_of_the_calls(
    redis_clock: ClockedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    reversed_calls(monkeypatch)

    async def check(bench: Bench, store: RedisStore) -> None:
        jobs = [bench.new() for _ in range(MANY)]
        answers = await store.enqueue(jobs)
        assert {answer.id for answer in answers} == {job.id for job in jobs}
        later = await bench.enqueue()
        assert await claim_all(store, bench) == [*(job.id for job in jobs), later]

    run(redis_clock, check, 1)
    check_indexes(redis_clock.run, redis_clock.prefix)


def test_answers_are_in_the_order_of_the_jobs(redis_clock: ClockedRedis) -> None:
    async def check(bench: Bench, store: RedisStore) -> None:
        jobs = [bench.new() for _ in range(MANY)]
        assert [answer.id for answer in await store.enqueue(jobs)] == [job.id for job in jobs]

    run(redis_clock, check, 1)


def test_a_batch_that_is_repeated_adds_only_what_is_missing(redis_clock: ClockedRedis) -> None:
    async def check(bench: Bench, store: RedisStore) -> None:
        jobs = [bench.new() for _ in range(MANY)]
        await store.enqueue(jobs[350:450])
        await bench.advance(SECOND)
        assert [answer.id for answer in await store.enqueue(jobs)] == [job.id for job in jobs]
        assert sorted(await claim_all(store, bench)) == sorted(job.id for job in jobs)

    run(redis_clock, check, 1)
    check_indexes(redis_clock.run, redis_clock.prefix)


@pytest.mark.parametrize("fields", [{"key": "ada"}, {"unique": None, "due": SECOND}])
def test_jobs_with_a_key_or_with_options_go_one_call_after_the_other(
    redis_clock: ClockedRedis, fields: dict[str, Any]
) -> None:
    async def check(bench: Bench) -> None:
        jobs: Sequence[NewJob] = [bench.new(**fields) for _ in range(MANY)]
        assert not enqueueing.may_overlap(jobs)

    run(redis_clock, check, 0)


def test_after_a_failure_no_further_call_begins() -> None:
    begun: list[int] = []

    def talk(number: int) -> Any:
        begun.append(number)
        yield [("PING",)]
        return [number]

    async def fail(*_: Any) -> list[Any]:
        await asyncio.sleep(0)
        if len(begun) >= 3:
            raise StoreUnavailable("away")
        return [b"PONG"]

    async def main() -> None:
        with pytest.raises(StoreUnavailable):
            await overlapped(map(talk, range(20)), fail, most=2)
        assert len(begun) <= 5

    asyncio.run(main())
