"""A job that met a standing ask is found and taken once, whatever got lost on its way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.store.redis.test_standing_asks import SOON, TOKEN, Asker, asking, state_of
from tests.support.app_on_store import until
from tests.support.redis_fixtures import ClockedRedis
from windlass.core.errors import StoreUnavailable, WriteUncertain
from windlass.core.jobs.states import State
from windlass.testing.conformance import Bench
from windlass.testing.conformance.bench import HOUR


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
