"""Middleware, pauses, breakers, rates and limits hold while a test moves the time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.testing.travelled_app import app, note, ran
from windlass import Breaker, Context, ErrorClass, Inject, Windlass
from windlass.testing import Travel, travel, travel_fixture

t = travel_fixture(app)


class Mailer:
    """What handlers send with."""


class Down(Exception):
    """What it depends on is down."""


@pytest.fixture(autouse=True)
def nothing_ran() -> Iterator[None]:
    ran.clear()
    yield
    assert app._store is None, "the app was not given back"


def test_middleware_hooks_and_provided_values_are_the_apps_own(t: Travel) -> None:
    async def around(ctx: Context, run: Callable[[], Awaitable[Any]]) -> Any:
        ran.append(f"before {ctx.kind.split('.')[-1]}")
        return await run()

    local = Windlass("memory://", middleware=[around])

    @local.provide
    def mailer() -> Iterator[Mailer]:
        ran.append("opened")
        yield Mailer()
        ran.append("closed")

    @local.on_start
    def begin() -> None:
        ran.append("hello")

    @local.job(name="send")
    async def send(mailer: Mailer = Inject) -> None:
        ran.append("sent")

    with travel(local) as own:
        send.enqueue()
        own.run_due()
    assert ran == ["opened", "hello", "before send", "sent", "closed"]


def test_an_isolated_handler_runs_here_where_the_store_is(t: Travel) -> None:
    local = Windlass("memory://")

    @local.job(isolate=True)
    def far_away() -> None:
        ran.append("here")

    with travel(local) as own:
        far_away.enqueue()
        own.run_due()
    assert ran == ["here"]


def test_a_handler_may_wait_for_another_job(t: Travel) -> None:
    local = Windlass("memory://")

    @local.job
    async def parent() -> str:
        return await (await child.aenqueue()).aresult("60s") + "!"

    @local.job
    async def child() -> str:
        return "done"

    with travel(local) as own:
        handle = parent.enqueue()
        own.run_due()
        own.assert_completed(handle, result="done!")
        assert handle.result() == "done!"


def test_a_batch_does_not_wait_for_jobs_that_do_not_come(t: Travel) -> None:
    local = Windlass("memory://")

    @local.job(batch_size=100, batch_timeout="1h")
    async def index(documents: list[int]) -> None:
        ran.append(documents)

    with travel(local) as own:
        local.enqueue_many([index.draft(number) for number in range(3)])
        own.run_due()
    assert ran == [[0, 1, 2]]


def test_a_pause_holds_and_a_cancelled_job_does_not_run(t: Travel) -> None:
    waits, gone = note.enqueue("waits"), note.enqueue("gone")
    gone.cancel()
    app.control.pause("default")
    assert t.advance("1d") == 0
    app.control.resume("default")
    t.run_due()
    t.assert_completed(waits)
    t.assert_cancelled(gone)


def test_a_running_job_is_cancelled_by_another(t: Travel) -> None:
    local = Windlass("memory://")

    @local.job
    async def endless() -> None:
        await asyncio.Event().wait()

    @local.job
    async def stop(job: str) -> None:
        await local.handle(job).acancel()

    with travel(local) as own:
        handle = endless.enqueue()
        stop.enqueue(str(handle.id))
        own.run_due()
        own.assert_cancelled(handle)


def test_a_breaker_opens_and_is_tried_after_its_cooldown(t: Travel) -> None:
    local, up = Windlass("memory://"), [False]

    @local.job(
        breaker=Breaker("gateway", failures=3, cooldown="10m"), errors={Down: ErrorClass.SYSTEM}
    )
    async def charge(order: int) -> None:
        ran.append(own.now)
        if not up[0]:
            raise Down

    with travel(local) as own:
        start = own.now
        local.enqueue_many([charge.draft(number) for number in range(10)])
        own.advance("5m")
        assert len(ran) == 3, "the others were let through although it is open"
        up[0] = True
        own.advance("10m")
        own.assert_completed(charge, count=10)
        # From the third failure on, which was at once.
        assert ran[3] == start + timedelta(minutes=10)


def test_a_rate_holds_over_hours(t: Travel) -> None:
    local = Windlass("memory://")

    @local.job(rate="10/h")
    async def call(number: int) -> None:
        ran.append(own.now)

    with travel(local) as own:
        start = own.now
        local.enqueue_many([call.draft(number) for number in range(25)])
        own.run_due()
        assert len(ran) == 10
        own.run_all()
        own.assert_completed(call, count=25)
        hours = [(at - start) / timedelta(hours=1) for at in ran]
        assert hours == [0] * 10 + [1] * 10 + [2] * 5


def test_a_concurrency_limit_does_not_block_other_jobs(t: Travel) -> None:
    local, running, most = Windlass("memory://"), [0], [0]

    @local.job(concurrency=2)
    async def work(number: int) -> None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        await asyncio.sleep(0.002)
        running[0] -= 1

    with travel(local) as own:
        local.enqueue_many([work.draft(number) for number in range(20)])
        own.run_due()
        own.assert_completed(work, count=20)
        assert most == [2]
