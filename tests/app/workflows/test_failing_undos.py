"""An undo that fails is tried again by its own policy, and a redrive resumes where it failed."""

from __future__ import annotations

import asyncio

import pytest

from tests.app.workflows.saga_shop import AT_ONCE, Shop, ending, run
from tests.support.app_on_store import Bed, in_state, log_lines, on_embedded_stores, serving, until
from windlass import Context, InvalidTransition, PermanentError, Retry, State
from windlass.core.jobs.job import Saga
from windlass.core.workflows.step_log import Steps

pytestmark = pytest.mark.stores("postgres")


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
