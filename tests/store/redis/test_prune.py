"""Jobs to be pruned are listed in pages and deleted in pieces, beside other workers and changes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.redis_fixtures import CLOCK, ClockedRedis, clocked_redis
from tests.support.redis_indexes import check_indexes
from tests.support.redis_server import RedisServer
from windlass.core.changes import Changes
from windlass.core.jobs.job import IDEMPOTENCY_KEY, Checkpoint, Job, Saga
from windlass.core.jobs.moves import Move, Verb
from windlass.core.jobs.queries import JobFilter, Retention
from windlass.core.jobs.states import State
from windlass.core.jobs.streams import ChunkGroup
from windlass.store.redis import RedisStore
from windlass.store.redis.connections.script import Command
from windlass.store.redis.scripting.calls import Talk
from windlass.store.redis.scripting.rows import micros
from windlass.store.redis.scripting.script_files import load_scripts
from windlass.store.redis.upkeep import prune as pruning
from windlass.testing.conformance import Bench, ManualClock
from windlass.testing.conformance.bench import DAY, HOUR, MANY, SECOND, attempt_of, leaving

FOREVER = Retention(finished=None)
LARGE = b'"' + b"x" * 2_000 + b'"'


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


async def answers(store: RedisStore, commands: Sequence[Command]) -> Sequence[Any]:
    """Run the commands of one round trip."""

    def talk() -> Talk[Sequence[Any]]:
        return (yield commands)

    return await store._talk(talk())


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


def test_workers_that_prune_together_delete_no_more_than_the_excess(
    redis_clock: ClockedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: each of them counts the excess, and deletes as many as that."""
    monkeypatch.setattr(pruning, "_DELETED_AT_ONCE", 7)

    async def main() -> None:
        stores = [
            RedisStore(redis_clock.url, kept=20, scripts=load_scripts(clock=CLOCK))
            for _ in range(6)
        ]
        jobs = await ended_jobs(Bench(stores[0], redis_clock), [*"abacabadab"] * 10)
        for _ in range(3):
            await asyncio.gather(*(store.prune(FOREVER, 60) for store in stores))
        assert await left(stores[0]) == [job.id for job in jobs[-20:]]
        for store in stores:
            await store.close()

    asyncio.run(main())


def test_jobs_that_ended_together_have_one_order_for_all_workers(
    redis_clock: ClockedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: two workers order them differently, and delete more than the excess together."""
    monkeypatch.setattr(pruning, "_LEAST_PAGE", 0)

    async def main() -> None:
        store = RedisStore(redis_clock.url, kept=300, scripts=load_scripts(clock=CLOCK))
        bench = Bench(store, redis_clock)
        new = [bench.new(queue=f"q{number // 100}") for number in range(600)]
        await store.enqueue(new)
        moves = [Move(verb=Verb.CANCEL, id=job.id) for job in new]
        await store.apply([], lambda _, __: Changes(answer=None, moves=moves))
        talk = pruning.prune(store._names, FOREVER, 250, 300)
        commands = next(talk)
        while getattr(commands[0][0], "name", "") != "prune_jobs":
            commands = talk.send(await answers(store, commands))
        commands = talk.send(await answers(store, commands))
        assert await left(store) == [job.id for job in new[-len(await left(store)) :]]
        await store.prune(FOREVER, 200)
        with pytest.raises(StopIteration):
            while True:
                commands = talk.send(await answers(store, commands))
        await store.prune(FOREVER, MANY)
        assert await left(store) == [job.id for job in new[300:]]
        await store.close()

    asyncio.run(main())


def test_a_worker_that_was_overtaken_deletes_no_more_than_the_excess(
    redis_clock: ClockedRedis,
) -> None:
    """Prevents: it counted before another worker had pruned, and deletes as many again."""

    async def main() -> None:
        store = RedisStore(redis_clock.url, kept=10, scripts=load_scripts(clock=CLOCK))
        jobs = await ended_jobs(Bench(store, redis_clock), [*"aab"] * 10)
        talk = pruning.prune(store._names, FOREVER, MANY, 10)
        replies = await answers(store, next(talk))
        replies = await answers(store, talk.send(replies))
        assert await store.prune(FOREVER, MANY) == 20
        with pytest.raises(StopIteration):
            while True:
                replies = await answers(store, talk.send(replies))
        assert await left(store) == [job.id for job in jobs[-10:]]
        await store.close()

    asyncio.run(main())


def test_jobs_are_listed_again_only_of_queues_that_ran_out(redis_clock: ClockedRedis) -> None:
    """Prevents: one queue has all old jobs, and every queue is listed for each page of it."""

    async def main() -> None:
        async with redis_clock.opened() as store:
            bench = Bench(store, redis_clock)
            jobs = await ended_jobs(bench, ["old"] * 90)
            jobs += await ended_jobs(bench, [f"q{number}" for number in range(30)])
            talk = pruning.prune(store._names, FOREVER, 80, 30)
            listed = 0
            commands = next(talk)
            with pytest.raises(StopIteration) as ended:
                while True:
                    listed += sum(command[0] == "ZRANGE" for command in commands)
                    commands = talk.send(await answers(store, commands))
            assert ended.value.value == 80
            assert 31 < listed < 40
            assert await left(store) == [job.id for job in jobs[80:]]

    asyncio.run(main())


def test_a_prune_ends_while_jobs_stream_whose_streams_are_not_kept(
    redis_server: RedisServer,
) -> None:
    """Prevents: live streams are stamped anew, listed anew, and so on for ever."""

    async def main() -> None:
        with clocked_redis(redis_server) as place:
            store = RedisStore(place.url)  # By the server's clock, which goes on.
            bench = Bench(store, ManualClock(datetime.now(UTC)))
            worker = await bench.worker()
            await store.enqueue([bench.new() for _ in range(120)])
            for job in await bench.claim(worker):
                place.run("ZADD", f"{{{place.prefix}}}:xt", 1, job.id.bytes)
            nothing = Retention(finished=None, streams=timedelta(0))
            async with asyncio.timeout(60):
                assert await store.prune(nothing, MANY) == 0
            await store.close()

    asyncio.run(main())


def test_every_key_of_a_pruned_job_is_deleted(redis_clock: ClockedRedis) -> None:
    """Steps, histories, streams and large values go with their job, also if it was undoing."""

    async def main() -> None:
        async with redis_clock.opened() as store:
            bench = Bench(store, redis_clock)
            for saga in (None, Saga.UNDOING):
                job = await bench.start(payload=LARGE)
                token = job.token or 0
                assert await store.checkpoint([Checkpoint(id=job.id, token=token, steps=("{}",))])
                where = {"attempt": 1, "offset": 0, "resumed": 0, "steps": 0}
                group = ChunkGroup(id=job.id, token=token, chunks=(b'"a"',), **where)
                assert await store.stream_append([group])
                moved = leaving(job, attempt=attempt_of(job), result=LARGE, saga=saga)
                assert await store.settle([moved]) == [True]
            await bench.advance(DAY)
            assert await store.prune(Retention(finished=HOUR, streams=HOUR), MANY) == 4
            start = f"{{{redis_clock.prefix}}}:".encode()
            keys = [key.removeprefix(start) for key in redis_clock.run("KEYS", start + b"*")]
            assert not [key for key in keys if key[:2] in (b"j:", b"h:", b"s:", b"y:", b"x:")]
            assert not {b"all", b"xt", b"n"} & set(keys)
            values = [key for key in keys if key.startswith(b"v:")]
            assert len(values) == 4
            assert all(redis_clock.run("TTL", start + key) > 0 for key in values)

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
                assert await store._talk(pruning._delete(store._names, "D:", [listed])) == 0
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
