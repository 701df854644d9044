"""What a job did is undone if it fails for good: in reverse, durably, and told exactly."""

from __future__ import annotations

import asyncio

import pytest

from tests.app.workflows.saga_shop import AT_ONCE, Shop, ending, run
from tests.support.app_on_store import Bed, in_state, on_embedded_stores, serving
from windlass import (
    Callbacks,
    Cancel,
    Context,
    PermanentError,
    State,
    StepsChanged,
    SyncContext,
    current_step,
)
from windlass.core.jobs.job import Saga

pytestmark = pytest.mark.stores("postgres")


def test_completed_steps_are_undone_in_reverse_with_the_same_arguments_and_keys(bed: Bed) -> None:
    app, shop = bed.app(), Shop()

    @app.job
    async def order(ctx: Context) -> None:
        await shop.reserve(ctx, "hotel", "flight")
        await ctx.step("note", shop.do, "note")
        raise PermanentError("no seats")

    job = asyncio.run(run(app, order, State.DEAD))
    assert shop.did == ["hotel", "flight", "note"]
    assert shop.undid == [("flight", "FLIGHT", True), ("hotel", "HOTEL", True)]
    assert shop.keys == [
        f"{job.id}/{name}" for name in ("hotel", "flight", "note", "flight", "hotel")
    ]
    assert ending(job) == (State.DEAD, "permanent error; undone: flight, hotel", Saga.OVER)
    assert job.error is not None
    assert job.error.message == "no seats"
    assert [each.outcome for each in job.history] == ["failed", "undone"]


def test_a_job_that_may_be_tried_again_is_not_undone_yet(bed: Bed) -> None:
    app, shop = bed.app(), Shop()

    @app.job(retry=AT_ONCE)
    async def order(ctx: Context) -> int:
        await shop.reserve(ctx, "hotel")
        if ctx.attempt < 3:
            raise ConnectionError
        return ctx.attempt

    async def main() -> None:
        async with serving(app):
            handle = await order.aenqueue()
            assert await handle.aresult("60s") == 3
            assert (await handle.ainfo()).saga is Saga.READY

    asyncio.run(main())
    assert shop.undid == []


def test_a_step_that_has_started_and_not_finished_is_undone_too(bed: Bed) -> None:
    app, shop = bed.app(), Shop()

    async def burst(name: str) -> None:
        raise PermanentError(name)

    @app.job
    async def order(ctx: Context) -> None:
        await shop.reserve(ctx, "hotel")
        await ctx.step("flight", burst, "flight", undo=shop.undo)

    job = asyncio.run(run(app, order, State.DEAD))
    assert shop.undid == [("flight", None, False), ("hotel", "HOTEL", True)]
    assert job.reason == "permanent error; undone: flight, hotel"


def test_a_job_that_its_handler_cancels_is_undone(bed: Bed) -> None:
    app, shop = bed.app(), Shop()

    @app.job
    async def order(ctx: Context) -> Cancel:
        await shop.reserve(ctx, "hotel")
        return Cancel("withdrawn")

    job = asyncio.run(run(app, order, State.CANCELLED))
    assert ending(job) == (State.CANCELLED, "withdrawn; undone: hotel", Saga.OVER)
    assert shop.undid == [("hotel", "HOTEL", True)]


def test_a_running_job_that_is_cancelled_is_undone(bed: Bed) -> None:
    app, shop = bed.app(), Shop()
    there = asyncio.Event()

    @app.job
    async def order(ctx: Context) -> None:
        await shop.reserve(ctx, "hotel")
        there.set()
        await asyncio.sleep(60)

    async def main() -> None:
        async with serving(app):
            handle = await order.aenqueue()
            await there.wait()
            await handle.acancel()
            job = await in_state(handle, State.CANCELLED)
        assert ending(job) == (
            State.CANCELLED,
            "cancelled while it ran; undone: hotel",
            Saga.OVER,
        )

    asyncio.run(main())
    assert shop.undid == [("hotel", "HOTEL", True)]


def test_a_sleeping_job_that_is_cancelled_is_undone(bed: Bed) -> None:
    app, shop = bed.app(), Shop()

    @app.job
    async def order(ctx: Context) -> None:
        await shop.reserve(ctx, "hotel")
        await ctx.sleep("1h")
        await shop.reserve(ctx, "flight")

    async def main() -> None:
        async with serving(app):
            handle = await order.aenqueue()
            await in_state(handle, State.SCHEDULED)
            await handle.acancel("changed my mind")
            job = await in_state(handle, State.CANCELLED)
        assert ending(job) == (State.CANCELLED, "changed my mind; undone: hotel", Saga.OVER)

    asyncio.run(main())
    assert shop.did == ["hotel"]
    assert shop.undid == [("hotel", "HOTEL", True)]


def test_a_job_whose_time_is_up_for_good_is_undone(bed: Bed) -> None:
    app, shop = bed.app(), Shop()

    @app.job(timeout="200ms", max_retries=0)
    async def order(ctx: Context) -> None:
        await shop.reserve(ctx, "hotel")
        await asyncio.sleep(60)

    job = asyncio.run(run(app, order, State.DEAD))
    assert ending(job) == (State.DEAD, "gave up after 1 failure; undone: hotel", Saga.OVER)
    assert job.error is not None
    assert job.error.type == "TimeoutError"


def test_a_job_that_expires_between_two_runs_is_undone(bed: Bed) -> None:
    app, shop = bed.app(), Shop()

    @app.job
    async def order(ctx: Context) -> None:
        await shop.reserve(ctx, "hotel")
        await ctx.sleep("400ms")

    async def main() -> None:
        async with serving(app):
            job = await in_state(
                await order.using(expires="300ms").aenqueue(), State.CANCELLED, State.COMPLETED
            )
        assert job.state is State.CANCELLED
        assert job.reason is not None
        assert job.reason.startswith("expired at")
        assert job.reason.endswith("undone: hotel")

    asyncio.run(main())
    assert shop.undid == [("hotel", "HOTEL", True)]


@on_embedded_stores
def test_changed_code_undoes_what_it_still_knows(bed: Bed) -> None:
    app, shop = bed.app(), Shop()
    names = [["hotel", "flight"], ["flight", "hotel"], ["hotel", "flight"]]

    @app.job(retry=AT_ONCE)
    async def order(ctx: Context) -> None:
        await shop.reserve(ctx, *names[ctx.attempt - 1])
        raise ConnectionError

    job = asyncio.run(run(app, order, State.DEAD))
    assert job.reason == "permanent error; undone: flight, hotel"
    assert job.error is not None
    assert job.error.type == f"windlass.{StepsChanged.__name__}"


@on_embedded_stores
def test_steps_of_several_tasks_are_undone_too(bed: Bed) -> None:
    """One that had not finished must not end the replay before the others were heard."""
    app, shop = bed.app(), Shop()
    tries: list[str] = []

    async def part(name: str) -> str:
        tries.append(name)
        if name == "a":
            raise PermanentError(name)
        return name

    @app.job
    async def order(ctx: Context) -> None:
        async with asyncio.TaskGroup() as tasks:
            for name in "bac":
                tasks.create_task(ctx.step(name, part, name, undo=shop.undo))

    job = asyncio.run(run(app, order, State.DEAD))
    assert job.saga is Saga.OVER
    assert sorted(name for name, *_ in shop.undid) == ["a", "b", "c"]
    assert sorted(tries) == ["a", "b", "c"]


@on_embedded_stores
def test_a_handler_in_a_thread_is_undone(bed: Bed) -> None:
    app, undone = bed.app(), []

    def do(name: str) -> str:
        return name

    async def undo(name: str) -> None:
        undone.append((name, current_step().result))

    @app.job
    def order(ctx: SyncContext) -> None:
        ctx.step("hotel", do, "hotel", undo=undo)
        ctx.step("flight", do, "flight", undo=undo)
        raise PermanentError("no seats")

    job = asyncio.run(run(app, order, State.DEAD))
    assert job.reason == "permanent error; undone: flight, hotel"
    assert undone == [("flight", "flight"), ("hotel", "hotel")]


@on_embedded_stores
def test_callbacks_hear_of_the_failure_once(bed: Bed) -> None:
    shop, heard = Shop(), []
    app = bed.app()
    around = Callbacks(
        failed=lambda _, error: heard.append(str(error)),
        completed=lambda *_: heard.append("completed"),
    )

    @app.job(middleware=[around])
    async def order(ctx: Context) -> None:
        await shop.reserve(ctx, "hotel")
        raise PermanentError("no seats")

    asyncio.run(run(app, order, State.DEAD))
    assert heard == ["no seats"]
