"""What a job did is undone if it fails for good: in reverse, durably, and told exactly."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.app_on_store import Bed, in_state, log_lines, on_embedded_stores, serving, until
from windlass import (
    Callbacks,
    Cancel,
    Context,
    InvalidTransition,
    PermanentError,
    Retry,
    State,
    StepsChanged,
    SyncContext,
    Windlass,
    current_step,
)
from windlass.core.jobs.job import Job, Saga
from windlass.core.workflows.step_log import Steps

pytestmark = pytest.mark.stores("postgres")

AT_ONCE = Retry(max_retries=2, initial="1ms")


@dataclass
class Shop:
    """What the steps of a saga have done, and what their undos have."""

    did: list[str] = field(default_factory=list)
    undid: list[tuple[str, Any, bool]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    refuses: dict[str, int] = field(default_factory=dict)
    """How often an undo is to fail."""

    async def do(self, name: str) -> str:
        self.did.append(name)
        self.keys.append(current_step().key)
        return name.upper()

    def undo(self, name: str) -> None:
        step = current_step()
        if self.refuses.get(name, 0):
            self.refuses[name] -= 1
            raise ConnectionError(f"{name} cannot be undone")
        self.keys.append(step.key)
        self.undid.append((name, step.result, step.finished))

    async def reserve(self, ctx: Context, *names: str, retry: Retry = AT_ONCE) -> None:
        for name in names:
            await ctx.step(name, self.do, name, undo=self.undo, undo_retry=retry)


def ending(job: Job) -> tuple[State, str | None, Saga | None]:
    return job.state, job.reason, job.saga


async def run(app: Windlass, handler: Any, *states: State) -> Job:
    async with serving(app):
        return await in_state(await handler.aenqueue(), *states)


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


def test_an_undo_is_tried_again_by_its_own_policy(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    app, shop = bed.app(), Shop(refuses={"hotel": 2})

    @app.job(max_retries=0)
    async def order(ctx: Context) -> None:
        await shop.reserve(ctx, "hotel", "flight")
        raise ConnectionError("no seats")

    job = asyncio.run(run(app, order, State.DEAD))
    assert job.reason == "gave up after 1 failure; undone: flight, hotel"
    assert [name for name, *_ in shop.undid] == ["flight", "hotel"]
    assert [each.outcome for each in job.history] == ["failed", "failed", "failed", "undone"]
    assert [line["reason"] for line in log_lines(caplog, "job.undoing")] == [
        "undoing: gave up after 1 failure"
    ]
    assert [line["step"] for line in log_lines(caplog, "step.undone")] == ["flight", "hotel"]


def test_an_undo_that_fails_for_good_is_named_and_a_redrive_resumes_there(
    bed: Bed,
) -> None:
    app, shop = bed.app(), Shop(refuses={"car": 3})

    @app.job
    async def order(ctx: Context) -> None:
        await shop.reserve(ctx, "hotel", "car", "flight")
        raise PermanentError("no seats")

    async def main() -> None:
        async with serving(app):
            handle = await order.aenqueue()
            job = await in_state(handle, State.DEAD)
            assert job.saga is Saga.UNDOING
            assert job.reason is not None
            assert job.reason.startswith("compensation failed: the undo of 'car': gave up after 3")
            assert "undone: flight; not undone: car, hotel" in job.reason
            assert "car cannot be undone" in job.reason
            assert (Steps(job.steps).undone, Steps(job.steps).to_undo) == (
                ["flight"],
                ["car", "hotel"],
            )
            await app.control.aredrive([handle.id])
            again = await in_state(handle, State.DEAD)
        assert ending(again) == (
            State.DEAD,
            "permanent error; undone: flight, car, hotel",
            Saga.OVER,
        )
        assert again.error is not None
        assert again.error.message == "no seats"

    asyncio.run(main())
    assert [name for name, *_ in shop.undid] == ["flight", "car", "hotel"]


def test_after_all_is_undone_a_redrive_begins_anew(bed: Bed) -> None:
    app, shop = bed.app(), Shop()

    @app.job
    async def order(ctx: Context) -> str:
        await shop.reserve(ctx, "hotel")
        if len(shop.did) == 1:
            raise PermanentError("no seats")
        return "done"

    async def main() -> None:
        async with serving(app):
            handle = await order.aenqueue()
            await in_state(handle, State.DEAD)
            await app.control.aredrive([handle.id])
            assert await handle.aresult("60s") == "done"

    asyncio.run(main())
    assert shop.did == ["hotel", "hotel"]


@on_embedded_stores
def test_a_step_whose_undo_is_gone_fails_the_compensation_at_once(bed: Bed) -> None:
    app, shop = bed.app(), Shop()

    @app.job
    async def order(ctx: Context) -> None:
        undo = shop.undo if ctx.attempt == 1 else None
        await ctx.step("hotel", shop.do, "hotel", undo=undo)
        raise PermanentError("no seats")

    job = asyncio.run(run(app, order, State.DEAD))
    assert job.attempt == 2
    assert job.reason is not None
    assert job.reason.startswith("compensation failed: the undo of 'hotel'")
    assert "no longer defines the undo of step 'hotel'" in job.reason


@on_embedded_stores
def test_a_replay_that_fails_before_it_comes_to_the_steps_is_tried_again(bed: Bed) -> None:
    app, shop = bed.app(), Shop()

    @app.job
    async def order(ctx: Context) -> None:
        if ctx.attempt == 2:
            raise ConnectionError("the database is away")
        await shop.reserve(ctx, "hotel")
        raise PermanentError("no seats")

    job = asyncio.run(run(app, order, State.DEAD))
    assert job.reason == "permanent error; undone: hotel"
    assert [each.outcome for each in job.history] == ["failed", "failed", "undone"]


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


@on_embedded_stores
def test_an_undo_whose_time_is_up_is_tried_again(bed: Bed) -> None:
    app, tries = bed.app(), []

    async def undo() -> None:
        tries.append(1)
        await asyncio.sleep(0 if len(tries) == 3 else 60)

    @app.job(timeout="150ms")
    async def order(ctx: Context) -> None:
        await ctx.step("hotel", lambda: None, undo=undo, undo_retry=AT_ONCE)
        raise PermanentError("no seats")

    job = asyncio.run(run(app, order, State.DEAD))
    assert job.reason == "permanent error; undone: hotel"
    assert len(tries) == 3


@on_embedded_stores
def test_a_job_that_is_being_undone_cannot_be_cancelled(bed: Bed) -> None:
    app, shop = bed.app(), Shop(refuses={"hotel": 1})

    @app.job
    async def order(ctx: Context) -> None:
        await shop.reserve(ctx, "hotel", retry=Retry(max_retries=3, initial="300ms"))
        raise PermanentError("no seats")

    async def main() -> None:
        async with serving(app):
            handle = await order.aenqueue()
            await until(lambda: not shop.refuses["hotel"] if shop.did else False)
            await in_state(handle, State.SCHEDULED)
            with pytest.raises(InvalidTransition, match="its compensation is running"):
                await handle.acancel()
            job = await in_state(handle, State.DEAD)
        assert job.reason == "permanent error; undone: hotel"

    asyncio.run(main())


@on_embedded_stores
def test_a_job_with_pending_undos_cannot_get_another_payload(bed: Bed) -> None:
    """Prevents an undo for an order that was never done, while the one that was done stays so."""
    app, shop = bed.app(), Shop(refuses={"hotel": 1})

    @app.job
    async def order(ctx: Context, name: str) -> None:
        await shop.reserve(ctx, name, retry=Retry(max_retries=0))
        raise PermanentError("no seats")

    async def main() -> None:
        async with serving(app):
            handle = await order.aenqueue("hotel")
            await in_state(handle, State.DEAD)
            with pytest.raises(InvalidTransition, match="redrive it unchanged, or purge it"):
                await app.control.aredrive_with(handle.id, b'{"name":"flight"}')
            await app.control.aredrive([handle.id])
            await until(lambda: shop.undid)
            job = await in_state(handle, State.DEAD)
        assert job.reason == "permanent error; undone: hotel"

    asyncio.run(main())


@on_embedded_stores
def test_a_saga_that_fails_once_is_one_failure_and_one_error_in_the_figures(bed: Bed) -> None:
    """It is dead of its error only once it is undone; that is no second one."""
    app, shop = bed.app(), Shop()

    @app.job(max_retries=0)
    async def order(ctx: Context) -> None:
        await shop.reserve(ctx, "seat")
        raise PermanentError("no money")

    async def main() -> None:
        async with serving(app) as worker:
            await in_state(await order.aenqueue(), State.DEAD)
        # Not before: the store knows of a death a moment before the worker has counted it.
        counts = worker._parts.status.figures().counts
        ended = {
            event: dict(counts[f"windlass_jobs_{event}_total"])[("default", "order")]
            for event in ("failed", "retried", "dead", "completed")
        }
        assert ended == {"failed": 1, "retried": 0, "dead": 1, "completed": 0}
        figures = await app.astats()
        assert [(each.kind, each.count, each.dead) for each in figures.errors] == [("order", 1, 1)]

    asyncio.run(main())
