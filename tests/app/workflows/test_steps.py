"""A step is done once in the life of its job, whatever happens between the runs."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from tests.support.app_on_store import Bed, Clock, log_lines, on_embedded_stores, serving, until
from windlass import Callbacks, Context, Retry, Snooze, State, SyncContext, current_step
from windlass.core.workflows.step_log import Steps

pytestmark = pytest.mark.stores("postgres")
DAY = timedelta(days=1)
AT_ONCE = Retry(max_retries=5, initial="1ms")


@dataclass
class Order:
    id: int
    lines: tuple[str, ...] = ()


def twice(number: int) -> int:
    return 2 * number


def test_a_retry_goes_on_after_the_last_finished_step(bed: Bed) -> None:
    app = bed.app()
    calls: list[str] = []

    async def fetch(page: int) -> Order:
        calls.append(f"fetch {page}")
        return Order(page, lines=("tea",))

    def store(order: Order) -> None:
        calls.append(f"store {order}")

    @app.job(retry=AT_ONCE)
    async def sync(ctx: Context) -> int:
        order = await ctx.step("fetch", fetch, 7)
        if ctx.attempt == 1:
            raise ConnectionError
        await ctx.step("store", store, order=order)
        if ctx.attempt == 2:
            raise ConnectionError
        return order.id

    async def main() -> None:
        async with serving(app):
            assert await (await sync.aenqueue()).aresult("60s") == 7

    asyncio.run(main())
    assert calls == ["fetch 7", "store Order(id=7, lines=('tea',))"]


def test_a_replay_returns_what_the_first_run_returned(bed: Bed) -> None:
    """A tuple that came back as a list in later runs only would be found in production."""
    app = bed.app()
    seen: list[Any] = []

    def untyped() -> Any:
        return (1, Order(2))

    def typed() -> tuple[int, Order]:
        return (1, Order(2))

    @app.job(retry=AT_ONCE)
    async def look(ctx: Context) -> None:
        seen.append(await ctx.step("untyped", untyped))
        seen.append(await ctx.step("typed", typed))
        if ctx.attempt == 1:
            raise ConnectionError

    async def main() -> None:
        async with serving(app):
            await (await look.aenqueue()).aresult("60s")

    asyncio.run(main())
    assert seen == 2 * [[1, {"id": 2, "lines": []}], (1, Order(2))]


def test_a_job_sleeps_without_a_slot_and_goes_on_where_it_was(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    clock = Clock()
    app = bed.app(store=bed.store(clock=clock))
    calls: list[str] = []
    heard: list[str] = []

    def callback(name: str) -> Any:
        return lambda *_: heard.append(name)

    around = Callbacks(completed=callback("completed"), failed=callback("failed"))

    def has_slept(times: int) -> bool:
        return len(log_lines(caplog, "job.slept")) == times

    @app.job(middleware=[around])
    async def remind(ctx: Context) -> str:
        await ctx.step("first", calls.append, "first")
        await ctx.sleep("1d")
        await ctx.step("second", calls.append, "second")
        await ctx.sleep(clock.now + DAY, name="the other day")
        return "done"

    async def main() -> None:
        async with serving(app, concurrency=1, lease="1h"):
            handle = await remind.aenqueue()
            for name, count in (("sleep-1", 1), ("the other day", 2)):
                await until(partial(has_slept, count))
                job = await handle.ainfo()
                assert (job.state, job.reason) == (State.SCHEDULED, f"asleep: {name}")
                assert (job.due_at, job.history) == (clock.now + DAY, ())
                clock.advance(days=1)
            assert await handle.aresult("60s") == "done"

    asyncio.run(main())
    assert calls == ["first", "second"]
    assert heard == ["completed"]
    assert not log_lines(caplog, "job.raised")


def test_a_handler_in_a_thread_has_steps_and_sleeps(bed: Bed) -> None:
    app = bed.app()
    threads: list[bool] = []

    def work(number: int) -> int:
        threads.append(threading.current_thread() is threading.main_thread())
        assert current_step().name == "work"
        return number

    @app.job(retry=AT_ONCE)
    def handle(ctx: SyncContext) -> int:
        number = ctx.step("work", work, 3)
        ctx.sleep("1ms")
        if ctx.attempt == 2:
            raise ConnectionError
        return number

    async def main() -> None:
        async with serving(app):
            assert await (await handle.aenqueue()).aresult("60s") == 3

    asyncio.run(main())
    assert threads == [False]


@on_embedded_stores
def test_steps_of_several_tasks_are_known_by_their_names(bed: Bed) -> None:
    app = bed.app()
    calls: list[int] = []

    async def part(number: int) -> int:
        await asyncio.sleep(0.02 if number == 1 and len(calls) == 0 else 0)
        calls.append(number)
        return number

    @app.job(retry=AT_ONCE)
    async def gather(ctx: Context) -> list[int]:
        before = await ctx.step("before", twice, 1)
        parts = range(1, 4) if ctx.attempt == 1 else range(3, 0, -1)
        found = await asyncio.gather(*(ctx.step(f"part-{n}", part, n) for n in parts))
        after = await ctx.step("after", twice, 2)
        if ctx.attempt == 1:
            raise ConnectionError
        return [before, *found, after]

    async def main() -> None:
        async with serving(app):
            assert await (await gather.aenqueue()).aresult("60s") == [2, 3, 2, 1, 4]

    asyncio.run(main())
    assert sorted(calls) == [1, 2, 3]


@on_embedded_stores
def test_the_key_of_a_step_stays_the_same(bed: Bed) -> None:
    app = bed.app()
    keys: list[str] = []

    def charge() -> None:
        keys.append(current_step().key)
        if len(keys) < 3:
            raise ConnectionError

    @app.job(retry=AT_ONCE)
    async def pay(ctx: Context) -> str:
        await ctx.step("charge", charge)
        return str(ctx.job_id)

    async def main() -> None:
        async with serving(app):
            job_id = await (await pay.aenqueue()).aresult("60s")
        assert keys == 3 * [f"{job_id}/charge"]
        with pytest.raises(LookupError, match=r"ctx\.step"):
            current_step()

    asyncio.run(main())


@on_embedded_stores
def test_a_step_has_a_timeout_of_its_own(bed: Bed) -> None:
    app = bed.app()

    @app.job(retry=AT_ONCE)
    async def walk(ctx: Context) -> str:
        nap = 60 if ctx.attempt == 1 else 0
        await ctx.step("nap", asyncio.sleep, nap, timeout="20ms")
        return "done"

    async def main() -> None:
        async with serving(app):
            handle = await walk.aenqueue()
            assert await handle.aresult("60s") == "done"
            job = await handle.ainfo()
        assert [entry.__struct_config__.tag for entry in Steps(job.steps).entries] == [
            "failed",
            "done",
        ]
        (failed,) = job.history
        assert failed.error is not None
        assert failed.error.message == "step 'nap' had no result within 20ms"

    asyncio.run(main())


@on_embedded_stores
def test_a_snooze_before_the_recorded_steps_changes_nothing(bed: Bed) -> None:
    app = bed.app()
    calls: list[str] = []

    @app.job(retry=AT_ONCE)
    async def walk(ctx: Context) -> Snooze | str:
        if ctx.attempt == 2:
            return Snooze("1ms")
        await ctx.step("a", calls.append, "a")
        if ctx.attempt == 1:
            raise ConnectionError
        return "done"

    async def main() -> None:
        async with serving(app):
            assert await (await walk.aenqueue()).aresult("60s") == "done"

    asyncio.run(main())
    assert calls == ["a"]


@on_embedded_stores
def test_a_handler_that_catches_everything_sleeps_all_the_same(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def walk(ctx: Context) -> str:
        try:
            await ctx.sleep("1ms")
        except BaseException:
            return "never stored"
        return "woke up"

    async def main() -> None:
        async with serving(app):
            assert await (await walk.aenqueue()).aresult("60s") == "woke up"

    asyncio.run(main())
