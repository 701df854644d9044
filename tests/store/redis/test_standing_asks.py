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
from windlass.core.errors import StoreUnavailable, WriteUncertain
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


@pytest.mark.parametrize("how", ["poll", "busy"])
def test_a_job_whose_hand_over_was_lost_is_found_and_taken_once(
    redis_clock: ClockedRedis, how: str
) -> None:
    """Prevents: a job that is held by a live worker which has never heard of it."""

    async def check(bench: Bench, asker: Asker) -> None:
        listener = asker.store._here().connections.listener
        receive = listener.on_job
        lost: list[bytes] = []
        listener.on_job = lost.append
        await asker.asleep(asker.ask(), timeout=SOON)
        job = await bench.enqueue()
        await asker.woken()
        assert not asker.jobs
        if how == "busy":
            await asker.store.busy()
        else:
            await asker.asleep(asker.ask(token=8))
        assert [each.id for each in asker.jobs] == [job]
        assert asker.jobs[0].token == TOKEN
        assert receive is not None
        await until(lambda: lost)
        receive(lost[0])
        assert len(asker.jobs) == 1, "a wake-up that comes late brings the same job again"

    asking(redis_clock, check)


def test_a_silent_loss_is_noticed_at_the_next_poll(redis_clock: ClockedRedis) -> None:
    """Prevents: an ask that was met is believed to stand, since no word of it came."""

    async def check(bench: Bench, asker: Asker) -> None:
        listener = asker.store._here().connections.listener
        listener._hear_message = lambda message: None  # type: ignore[method-assign]
        await asker.asleep(asker.ask(), timeout=SOON)
        job = await bench.enqueue()
        await asker.woken()
        await asker.asleep(asker.ask(token=8))
        assert [each.id for each in asker.jobs] == [job]

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


def test_an_ask_that_reaches_the_server_late_is_known(redis_clock: ClockedRedis) -> None:
    """Prevents: a job comes by an ask that was given up, since its call was cancelled."""

    async def check(bench: Bench, asker: Asker) -> None:
        await asker.asleep(asker.ask(token=7))
        await asker.store.busy()
        await asker.asleep(asker.ask(token=8))
        key = next(key for key in redis_clock.all_keys() if b":ask:" in key)
        redis_clock.run("SET", key, b"w\x027\x02\x01work\x01")
        job = await bench.enqueue()
        await asker.woken()
        assert [(each.id, each.token) for each in asker.jobs] == [(job, 7)]

    asking(redis_clock, check)


class Calls:
    """Stands between a store and its connections, and disturbs one call."""

    def __init__(self, asker: Asker) -> None:
        self._here = asker.store._here().connections
        self._run = self._here.run
        self._get = asker.store._names.scripts["get"]

    def disturb(self, how: Callable[..., Awaitable[Any]], *, reads: bool) -> None:
        """Let the next call that reads a job, or that does not, be carried out by a function."""

        async def run(*commands: Any, **options: Any) -> Any:
            if (commands[0][0] is self._get) is not reads:
                return await self._run(*commands, **options)
            self._here.run = self._run
            return await how(lambda: self._run(*commands, **options))

        self._here.run = run


async def deaf_with_a_job(bench: Bench, asker: Asker) -> Any:
    """Return a job that has met the ask, of which the worker has not heard."""
    asker.store._here().connections.listener.on_job = lambda _: None
    await asker.asleep(asker.ask())
    job = await bench.enqueue()
    await asker.woken()
    assert await state_of(bench, job) is State.RUNNING
    return job


def test_a_repeated_call_does_not_leave_an_ask_again_that_was_met(
    redis_clock: ClockedRedis,
) -> None:
    """Prevents: the next job is given to a worker that takes it for the one before."""

    async def check(bench: Bench, asker: Asker) -> None:
        first = []

        async def repeated(call: Callable[[], Awaitable[Any]]) -> Any:
            await call()
            first.append(await bench.enqueue())
            await until(lambda: asker.jobs)
            return await call()

        mark = (await asker.store.sweep()).mark
        Calls(asker).disturb(repeated, reads=False)
        await asker.store.wait(mark, HOUR, asker.ask())
        second = await bench.enqueue()
        assert await state_of(bench, second) is State.PENDING
        assert [job.id for job in asker.jobs] == first

    asking(redis_clock, check)


def test_a_met_ask_that_is_left_again_late_brings_its_job(redis_clock: ClockedRedis) -> None:
    """Prevents: the job is taken for the first one of the ask, and held without being run."""

    async def check(bench: Bench, asker: Asker) -> None:
        await asker.asleep(asker.ask(token=7))
        key = next(key for key in redis_clock.all_keys() if b":ask:" in key)
        jobs = [await bench.enqueue()]
        await asker.woken()
        await asker.asleep(asker.ask(token=8))
        redis_clock.run("SET", key, b"w\x027\x02\x01work\x01")
        jobs.append(await bench.enqueue())
        await asker.woken()
        assert [(job.id, job.token) for job in asker.jobs] == [(job, 7) for job in jobs]

    asking(redis_clock, check)


@pytest.mark.parametrize("first", ["poll", "busy"])
@pytest.mark.parametrize("then", ["poll", "busy"])
def test_a_job_that_could_not_be_read_is_found_by_the_next_call(
    redis_clock: ClockedRedis, first: str, then: str
) -> None:
    """Prevents: the store forgets who has the job before the worker has it."""

    async def check(bench: Bench, asker: Asker) -> None:
        async def fails(_: object) -> Any:
            raise StoreUnavailable("away")

        async def call(how: str, token: int) -> None:
            if how == "busy":
                await asker.store.busy()
            else:
                mark = (await asker.store.sweep()).mark
                await asker.store.wait(mark, SOON, asker.ask(token=token))

        job = await deaf_with_a_job(bench, asker)
        Calls(asker).disturb(fails, reads=True)
        with pytest.raises(StoreUnavailable):
            await call(first, 8)
        assert not asker.jobs
        await call(then, 9)
        assert [(each.id, each.token) for each in asker.jobs] == [(job, TOKEN)]
        await call("poll", 10)
        assert len(asker.jobs) == 1
        assert not [key for key in redis_clock.all_keys() if b":met:" in key]

    asking(redis_clock, check)


def test_a_job_is_found_after_the_wait_was_cancelled_that_read_it(
    redis_clock: ClockedRedis,
) -> None:
    async def check(bench: Bench, asker: Asker) -> None:
        reading = asyncio.Event()

        async def hangs(_: object) -> Any:
            reading.set()
            await asyncio.Event().wait()

        job = await deaf_with_a_job(bench, asker)
        Calls(asker).disturb(hangs, reads=True)
        mark = (await asker.store.sweep()).mark
        waiting = asyncio.create_task(asker.store.wait(mark, HOUR, asker.ask(token=8)))
        await reading.wait()
        waiting.cancel()
        await asyncio.wait({waiting})
        await asker.store.busy()
        assert [each.id for each in asker.jobs] == [job]

    asking(redis_clock, check)


def test_a_job_is_found_after_the_answer_of_busy_was_lost(redis_clock: ClockedRedis) -> None:
    async def check(bench: Bench, asker: Asker) -> None:
        async def loses(call: Callable[[], Awaitable[Any]]) -> Any:
            await call()
            return await call()  # As after a connection that was lost.

        async def fails(call: Callable[[], Awaitable[Any]]) -> Any:
            await call()
            raise WriteUncertain("lost")

        job = await deaf_with_a_job(bench, asker)
        Calls(asker).disturb(fails, reads=False)
        with pytest.raises(WriteUncertain):
            await asker.store.busy()
        Calls(asker).disturb(loses, reads=False)
        await asker.store.busy()
        assert [each.id for each in asker.jobs] == [job]

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
