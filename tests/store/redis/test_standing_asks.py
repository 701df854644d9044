"""A standing ask is met once, under a live lease and in order, and no job that met one is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.store.redis.test_waking import run, serve
from tests.support.app_on_store import until
from tests.support.redis_fixtures import ClockedRedis
from tests.support.redis_indexes import check_indexes
from tests.support.redis_server import RedisServer
from windlass.core.claims.lanes import StandingAsk
from windlass.core.jobs.job import Job
from windlass.core.jobs.settle import completed
from windlass.core.jobs.states import State
from windlass.store.redis import RedisStore
from windlass.testing.conformance import Bench
from windlass.testing.conformance.bench import HOUR, LEASE

SOON = timedelta(milliseconds=20)
TOKEN = (1 << 62) + 1
"""More than a double can hold."""


class Asker:
    """A worker that waits with standing asks, and the jobs that came by them."""

    def __init__(self, store: RedisStore, worker: str = "w") -> None:
        self.store = store
        self.worker = worker
        self.jobs: list[Job] = []
        self.waiting: asyncio.Task[None] | None = None

    def ask(self, token: int = TOKEN, kinds: tuple[str, ...] = ("work",)) -> StandingAsk:
        return StandingAsk(worker=self.worker, token=token, kinds=kinds, take=self.jobs.append)

    async def asleep(self, ask: StandingAsk | None, timeout: timedelta = HOUR) -> None:
        """Wait, and return once the store has the ask."""
        state = self.store._here()

        def stands() -> bool:
            return state._listed is not None and state._ask is ask

        while self.waiting is None or self.waiting.done() or not stands():
            mark = (await self.store.sweep()).mark
            waiting = self.waiting = asyncio.create_task(self.store.wait(mark, timeout, ask))
            await until(lambda: waiting.done() or stands())  # noqa: B023

    async def woken(self) -> None:
        assert self.waiting is not None
        await self.waiting


async def ready(store: RedisStore, worker: str = "w") -> Asker:
    await serve(store, worker, kinds=("work", "other"))
    return Asker(store, worker)


def asking(redis_clock: ClockedRedis, check: Callable[[Bench, Asker], Awaitable[None]]) -> None:
    """Run a check with a bench and one worker that may ask, and compare the indexes."""

    async def main(bench: Bench, store: RedisStore) -> None:
        await check(bench, await ready(store))

    run(redis_clock, main, 1)
    check_indexes(redis_clock.run, redis_clock.prefix)


async def state_of(bench: Bench, job: Any) -> State:
    found = await bench.store.get(job)
    assert found is not None
    return found.state


def test_an_enqueue_claims_its_job_for_a_worker_that_asks(redis_clock: ClockedRedis) -> None:
    async def check(bench: Bench, asker: Asker) -> None:
        await asker.asleep(asker.ask())
        sent = await bench.enqueue(queue="mail", priority=3, payload=b'{"to":"ada"}')
        await asker.woken()
        (job,) = asker.jobs
        stored = await bench.store.get(sent)
        assert job == stored, "the worker and the store know the same job"
        assert (job.state, job.attempt, job.worker) == (State.RUNNING, 1, "w")
        assert (job.token, job.payload) == (TOKEN, b'{"to":"ada"}')
        assert not (await bench.store.sweep()).heads
        assert await asker.store.settle([completed(job)]) == [True]
        assert await state_of(bench, sent) is State.COMPLETED

    asking(redis_clock, check)


def test_an_ask_is_met_once(redis_clock: ClockedRedis) -> None:
    async def check(bench: Bench, asker: Asker) -> None:
        await asker.asleep(asker.ask())
        first, second = await bench.enqueue(), await bench.enqueue()
        await asker.woken()
        assert [job.id for job in asker.jobs] == [first]
        assert await state_of(bench, second) is State.PENDING

    asking(redis_clock, check)


def test_no_job_overtakes_one_of_its_lane_that_waits(redis_clock: ClockedRedis) -> None:
    async def check(bench: Bench, asker: Asker) -> None:
        first = await bench.enqueue()
        await asker.asleep(asker.ask())
        second = await bench.enqueue()
        await asker.woken()
        assert not asker.jobs
        assert [await state_of(bench, job) for job in (first, second)] == [State.PENDING] * 2

    asking(redis_clock, check)


@pytest.mark.parametrize(
    "fields", [{"kind": "other"}, {"payload": b'"' + b"x" * 1_000 + b'"'}], ids=["kind", "payload"]
)
def test_jobs_of_other_kinds_and_large_payloads_only_wake_the_worker(
    redis_clock: ClockedRedis, fields: dict[str, Any]
) -> None:
    async def check(bench: Bench, asker: Asker) -> None:
        await asker.asleep(asker.ask())
        job = await bench.enqueue(**fields)
        await asker.woken()
        assert not asker.jobs
        assert await state_of(bench, job) is State.PENDING

    asking(redis_clock, check)


def test_a_worker_without_a_live_lease_is_given_nothing(redis_clock: ClockedRedis) -> None:
    async def check(bench: Bench, asker: Asker) -> None:
        await asker.asleep(asker.ask())
        await bench.advance(2 * LEASE)
        job = await bench.enqueue()
        await asker.woken()
        assert not asker.jobs
        assert await state_of(bench, job) is State.PENDING

    asking(redis_clock, check)


def test_the_ask_of_a_worker_that_died_is_passed_over(redis_clock: ClockedRedis) -> None:
    """Its connection has ended; its lease lives on for a while."""

    async def check(bench: Bench, dead: RedisStore, alive: RedisStore) -> None:
        gone, asker = await ready(dead, "dead"), await ready(alive)
        await gone.asleep(gone.ask(token=7))
        await dead._here().connections.listener.close()
        await asker.asleep(asker.ask())
        jobs = [await bench.enqueue(), await bench.enqueue(kind="other")]
        await asker.woken()
        assert [job.id for job in asker.jobs] == jobs[:1]
        assert not gone.jobs
        assert await state_of(bench, jobs[1]) is State.PENDING

    run(redis_clock, check, 2)
    check_indexes(redis_clock.run, redis_clock.prefix)


def test_a_worker_that_missed_heartbeats_is_given_nothing(
    redis_clock: ClockedRedis, redis_server: RedisServer
) -> None:
    """Prevents: a job is held by a dead worker until its lease ends, since a subscriber of every
    channel has heard the message.
    """

    async def check(bench: Bench, asker: Asker) -> None:
        await asker.asleep(asker.ask())
        await asker.store._here().connections.listener.close()
        await bench.advance(timedelta(seconds=5))
        assert timedelta(seconds=5) < LEASE
        with redis_server.client() as everything:
            everything("PSUBSCRIBE", "*")
            job = await bench.enqueue()
        assert await state_of(bench, job) is State.PENDING
        assert asker.waiting is not None
        asker.waiting.cancel()

    asking(redis_clock, check)


def test_a_job_comes_also_after_the_wait_was_cancelled(redis_clock: ClockedRedis) -> None:
    async def check(bench: Bench, asker: Asker) -> None:
        await asker.asleep(asker.ask())
        assert asker.waiting is not None
        asker.waiting.cancel()
        job = await bench.enqueue()
        await until(lambda: asker.jobs)
        assert asker.jobs[0].id == job

    asking(redis_clock, check)


@pytest.mark.parametrize("how", ["busy", "wait", "retire"])
def test_an_ask_is_withdrawn(redis_clock: ClockedRedis, how: str) -> None:
    async def check(bench: Bench, asker: Asker) -> None:
        await asker.asleep(asker.ask())
        if how == "wait":
            await asker.asleep(None)
        else:
            await (asker.store.busy() if how == "busy" else asker.store.retire("w"))
        job = await bench.enqueue()
        assert await state_of(bench, job) is State.PENDING
        assert not [key for key in redis_clock.all_keys() if b":ask:" in key]
        assert not asker.jobs

    asking(redis_clock, check)


def test_a_worker_whose_connection_was_cut_asks_again(redis_clock: ClockedRedis) -> None:
    async def check(bench: Bench, asker: Asker) -> None:
        await asker.asleep(asker.ask())
        redis_clock.run("CLIENT", "KILL", "TYPE", "pubsub")
        await asker.woken()
        await until(lambda: asker.store.listening)
        await asker.asleep(asker.ask(token=9))
        job = await bench.enqueue()
        await until(lambda: asker.jobs)
        assert (asker.jobs[0].id, asker.jobs[0].token) == (job, 9)

    asking(redis_clock, check)


def test_two_workers_of_one_event_loop_get_their_own_jobs(redis_clock: ClockedRedis) -> None:
    async def check(bench: Bench, store: RedisStore) -> None:
        askers = [await ready(store, worker) for worker in ("one", "two")]
        calls = [
            asyncio.create_task(store.wait((await store.sweep()).mark, HOUR, asker.ask(token)))
            for token, asker in enumerate(askers)
        ]
        await until(lambda: store._here()._ask is not None)
        sent = []
        for number in range(6):
            sent.append(await bench.enqueue(queue=f"q{number}"))
            for token, asker in enumerate(askers, 10 * number + 2):
                mark = (await store.sweep()).mark
                calls.append(asyncio.create_task(store.wait(mark, HOUR, asker.ask(token))))
            await asyncio.wait(calls, timeout=0.02)
        for call in calls:
            call.cancel()
        await store.busy()
        waiting = [job for job in sent if await state_of(bench, job) is State.PENDING]
        taken = [job.id for asker in askers for job in asker.jobs]
        assert sorted(taken + waiting) == sorted(sent)
        assert taken
        assert all(job.worker == asker.worker for asker in askers for job in asker.jobs)

    run(redis_clock, check, 1)


def test_an_error_of_the_worker_does_not_end_the_connection(redis_clock: ClockedRedis) -> None:
    async def check(bench: Bench, asker: Asker) -> None:
        errors: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, it: errors.append(it))

        def fail(job: Job) -> None:
            raise RuntimeError(str(job.id))

        await asker.asleep(StandingAsk(worker="w", token=5, kinds=("work",), take=fail))
        job = await bench.enqueue()
        await asker.woken()
        assert str(job) in errors[0]["message"]
        assert asker.store.listening

    asking(redis_clock, check)


def test_the_answer_to_the_producer_follows_the_hand_over(redis_clock: ClockedRedis) -> None:
    """An enqueue that is repeated, since its answer was lost, neither adds nor hands over again."""

    async def check(bench: Bench, asker: Asker) -> None:
        await asker.asleep(asker.ask())
        new = bench.new()
        await bench.store.enqueue([new])
        await asker.woken()
        await asker.asleep(asker.ask(token=8))
        (again,) = await bench.store.enqueue([new])
        assert (again.id, again.is_duplicate) == (new.id, False)
        assert [job.id for job in asker.jobs] == [new.id]
        assert not (await bench.store.sweep()).heads

    asking(redis_clock, check)


def test_a_restart_of_the_server_neither_loses_jobs_nor_ends_the_asking(tmp_path: Path) -> None:
    async def main() -> None:
        store, producer = RedisStore(server.url), RedisStore(server.url)
        bench = Bench(producer, ServersClock(server))
        await store.open()
        asker = await ready(store)
        await asker.asleep(asker.ask())
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        # The file has the ask. Either the worker listens again, or nobody gets the job.
        first = await bench.enqueue()
        if await state_of(bench, first) is State.RUNNING:
            await until(lambda: [job.id for job in asker.jobs] == [first])
        await asker.woken()
        await until(lambda: store.listening)
        await asker.asleep(asker.ask(token=9))
        asker.jobs.clear()
        second = await bench.enqueue(queue="other")
        await until(lambda: asker.jobs)
        assert [job.id for job in asker.jobs] == [second]
        await store.close()
        await producer.close()

    with RedisServer(tmp_path, appendonly="yes", appendfsync="always") as server:
        asyncio.run(main())


class ServersClock:
    """The clock of a server, which nobody moves."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server

    def __call__(self) -> datetime:
        return datetime.fromtimestamp(int(self._server.call("TIME")[0]), UTC)

    async def advance(self, span: timedelta) -> None:
        raise NotImplementedError
