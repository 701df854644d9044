"""Sagas on ways that nobody planned: caught errors, threads, swallowed undos, second lives."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.app_on_store import (
    Bed,
    Through,
    in_state,
    on_embedded_stores,
    serving,
    serving_in_a_thread,
    until,
)
from windlass import (
    Context,
    Middleware,
    PermanentError,
    State,
    StoreUnavailable,
    SyncContext,
    current_step,
)
from windlass.core.jobs.job import Saga
from windlass.core.workflows.step_log import Steps

pytestmark = pytest.mark.stores("postgres")

STRANGE = '{"entry":"teleported"}'
"""An entry that only a later release could have written."""


async def fine(*_: object) -> str:
    return current_step().key


async def broken(*_: object) -> None:
    raise ConnectionResetError("the line was cut")


@on_embedded_stores
def test_a_handler_cannot_go_on_after_a_step_that_failed(bed: Bed) -> None:
    """Prevents a run that no later one could repeat, and a saga that could never be undone."""
    app, undone = bed.app(), list[str]()

    async def undo(what: str) -> None:
        undone.append(what)

    @app.job(max_retries=3)
    async def pay(ctx: Context) -> None:
        try:
            await ctx.step("card", broken, "card", undo=undo)
        except ConnectionResetError:
            await ctx.step("invoice", fine, "invoice", undo=undo)

    async def main() -> None:
        async with serving(app):
            job = await in_state(await pay.aenqueue(), State.DEAD)
            assert job.error is not None
            assert "'card' failed, but the handler continued with 'invoice'" in job.error.message
            assert job.saga is Saga.OVER

    asyncio.run(main())
    assert undone == ["card"]


@on_embedded_stores
def test_a_handler_in_a_thread_that_has_slept_is_undone(bed: Bed) -> None:
    app, undone = bed.app(), list[str]()

    @app.job(max_retries=0)
    def travel(ctx: SyncContext) -> None:
        ctx.step("hotel", str, "hotel", undo=undone.append)
        ctx.sleep("10ms")
        ctx.step("flight", str, "flight", undo=undone.append)
        raise PermanentError("no visa")

    with serving_in_a_thread(app):
        handle = travel.enqueue()
        job = asyncio.run(in_state(handle, State.DEAD))
        assert job.reason == "permanent error; undone: flight, hotel"
    assert undone == ["flight", "hotel"]


@on_embedded_stores
def test_middleware_that_makes_a_task_of_the_handler_is_no_hindrance(bed: Bed) -> None:
    async def limit(ctx: Context, call_next: Any) -> Any:
        return await asyncio.wait_for(call_next(), 60)

    app = bed.app(middleware=[limit])

    @app.job
    async def doze(ctx: Context) -> str:
        await ctx.step("one", fine)
        await ctx.sleep("10ms")
        return "rested"

    async def main() -> None:
        async with serving(app):
            handle = await doze.aenqueue()
            assert await handle.aresult("60s") == "rested"

    asyncio.run(main())


@on_embedded_stores
def test_an_undo_that_a_middleware_swallows_is_no_success(bed: Bed) -> None:
    async def swallow(ctx: Context, call_next: Any) -> Any:
        try:
            return await call_next()
        except ConnectionResetError:
            return None

    careless: Middleware = swallow
    app = bed.app(middleware=[careless])

    @app.job(max_retries=0)
    async def travel(ctx: Context) -> None:
        await ctx.step("hotel", fine, undo=broken)
        raise PermanentError("no visa")

    async def main() -> None:
        async with serving(app):
            job = await in_state(await travel.aenqueue(), State.DEAD, State.COMPLETED)
            assert job.state is State.DEAD
            assert (job.reason or "").startswith("compensation failed")

    asyncio.run(main())


def test_a_second_life_has_other_keys_and_no_old_events(bed: Bed) -> None:
    """Prevents a service that knows the key from answering with what was undone."""
    app, keys = bed.app(), list[str]()

    async def charge() -> None:
        keys.append(current_step().key)

    @app.job(max_retries=0)
    async def checkout(ctx: Context) -> str:
        await ctx.step("charge", charge, undo=charge)
        verdict: str = await ctx.wait_for("parcel", timeout="1h")
        if verdict != "taken":
            raise PermanentError(verdict)
        return verdict

    async def main() -> None:
        async with serving(app):
            handle = await checkout.aenqueue()
            await app.asend_event("parcel", "refused")
            job = await in_state(handle, State.DEAD)
            assert job.saga is Saga.OVER
            await app.control.aredrive([handle.id])
            await app.asend_event("parcel", "taken")
            assert await handle.aresult("60s") == "taken"

    asyncio.run(main())
    first, undo, second = keys
    assert first == undo
    assert second == f"{first}#1"


@on_embedded_stores
def test_steps_are_written_with_the_outcome_if_the_store_was_unreachable(bed: Bed) -> None:
    """Prevents a step that is done twice, since its checkpoint was lost and its end was not."""
    done: list[str] = []

    class Deaf(Through):
        async def checkpoint(self, checkpoints: Any) -> Any:
            raise StoreUnavailable("nobody answers")

    app = bed.app()
    app.store = Deaf(bed.store())

    @app.job(max_retries=0)
    async def pay(ctx: Context) -> None:
        await ctx.step("pay", done.append, "paid")

    async def main() -> None:
        async with serving(app, shutdown_timeout="1s"):
            handle = await pay.aenqueue()
            await until(lambda: done)
        job = await handle.ainfo()
        assert job.state is State.PENDING
        assert list(Steps(job.steps).finished) == ["pay"]

    asyncio.run(main())


@on_embedded_stores
@pytest.mark.parametrize("saga", [Saga.READY, Saga.UNDOING])
def test_a_log_of_another_release_stops_its_job_and_nobody_else(bed: Bed, saga: Saga) -> None:
    app = bed.app()
    store = bed.store()

    class Newer(Through):
        async def claim(self, claim: Any, **options: Any) -> Any:
            jobs = await self.inner.claim(claim, **options)
            return [
                replace(job, steps=(STRANGE, *job.steps), saga=job.saga or saga)
                if job.kind == "travel"
                else job
                for job in jobs
            ]

    app.store = Newer(store)

    @app.job(concurrency=1)
    async def travel(ctx: Context) -> None:
        await ctx.step("hotel", fine)

    @app.job
    async def idle() -> None: ...

    async def main() -> None:
        async with serving(app):
            handles = [await travel.aenqueue() for _ in range(2)]
            for handle in handles:
                job = await in_state(handle, State.DEAD)
                assert "compensation failed" in (job.reason or "")
                assert "cannot read" in (job.reason or "")
                assert job.saga is Saga.UNDOING
            await in_state(await idle.aenqueue(), State.COMPLETED)

    asyncio.run(main())
