"""Waiting for events: without a slot, over restarts, before and after they are sent."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from tests.support.app_on_store import (
    Bed,
    Clock,
    Through,
    in_state,
    log_lines,
    on_embedded_stores,
    serving,
    serving_in_a_thread,
    until,
)
from windlass import (
    Backoff,
    Context,
    EventTimeout,
    Retry,
    State,
    StoreUnavailable,
    SyncContext,
    Windlass,
)
from windlass.core.metrics.families import EVENTS
from windlass.core.records import News
from windlass.worker import Worker

pytestmark = pytest.mark.stores("postgres")


def waiting_app(bed: Bed, **options: Any) -> tuple[Windlass, Any, list[str]]:
    app, begun = bed.app(**options), list[str]()

    @app.job(max_retries=0)
    async def ship(ctx: Context, order: int) -> Any:
        begun.append(await ctx.step("pack", pack))
        return await ctx.wait_for(f"paid:{order}", timeout="3d")

    return app, ship, begun


async def pack() -> str:
    return "packed"


async def is_asleep(handle: Any) -> bool:
    job = await handle.ainfo()
    return job.state is State.SCHEDULED and job.waiting_for is None


async def parked(handle: Any, event: str) -> None:
    job = await in_state(handle, State.SCHEDULED)
    assert (job.waiting_for, job.reason) == (f"event:{event}", f"waiting for event {event}")
    assert (job.failures, job.crashes) == (0, 0)


def counted(worker: Worker) -> dict[str, dict[str, int]]:
    """Return what a worker has counted, by kind."""
    return {
        each.kind: {event: count for event, count in zip(EVENTS, each.events, strict=True) if count}
        for each in worker._setup.meters.tallies
    }


def test_a_job_waits_without_a_slot_and_goes_on_with_the_event(bed: Bed) -> None:
    app, ship, begun = waiting_app(bed)

    async def main() -> None:
        async with serving(app, concurrency=1):
            first = await ship.aenqueue(42)
            await parked(first, "paid:42")
            second = await ship.aenqueue(7)
            await parked(second, "paid:7")
            await app.asend_event("paid:42", {"by": "card"})
            assert await first.aresult("60s") == {"by": "card"}
            assert (await second.ainfo()).state is State.SCHEDULED
        async with serving(app):
            await app.asend_event("paid:7")
            assert await second.aresult("60s") is None

    asyncio.run(main())
    # Each runs twice: the second time, its step is not done again, and its result is the same.
    assert begun == ["packed"] * 4


def test_an_event_that_came_before_the_wait_is_taken_at_once(bed: Bed) -> None:
    app, ship, begun = waiting_app(bed)

    async def main() -> None:
        handle = await ship.aenqueue(42)
        await app.asend_event("paid:42", 1)
        async with serving(app):
            assert await handle.aresult("60s") == 1

    asyncio.run(main())
    assert set(begun) == {"packed"}


@on_embedded_stores
def test_an_event_from_before_the_job_is_not_for_it(bed: Bed) -> None:
    clock = Clock()
    app, ship, _ = waiting_app(bed, store=bed.store(clock=clock))

    async def main() -> None:
        await app.asend_event("paid:42", "too early")
        clock.advance(seconds=1)
        handle = await ship.aenqueue(42)
        async with serving(app):
            await parked(handle, "paid:42")
            await app.asend_event("paid:42", "now")
            assert await handle.aresult("60s") == "now"

    asyncio.run(main())


def test_a_wait_that_times_out_raises_in_the_handler(bed: Bed) -> None:
    clock = Clock()
    app, ship, _ = waiting_app(bed, store=bed.store(clock=clock))

    async def main() -> None:
        async with serving(app):
            handle = await ship.aenqueue(42)
            await parked(handle, "paid:42")
            clock.advance(days=3)
            job = await in_state(handle, State.DEAD)
            assert job.error is not None
            assert "did not arrive in time" in job.error.message
            assert (job.failures, job.reason) == (1, "permanent error")

    asyncio.run(main())


@on_embedded_stores
def test_a_handler_may_go_on_without_the_event(bed: Bed) -> None:
    clock = Clock()
    app = bed.app(store=bed.store(clock=clock))

    @app.job
    async def ship(ctx: Context) -> str:
        try:
            await ctx.wait_for("paid", timeout="1h")
        except EventTimeout:
            await ctx.sleep("1h")
            return "reminded"
        return "paid"

    async def main() -> None:
        async with serving(app):
            handle = await ship.aenqueue()
            await parked(handle, "paid")
            clock.advance(hours=1)
            # What was late once stays late, also if the event comes while the job sleeps.
            await until(lambda: is_asleep(handle))
            await app.asend_event("paid")
            clock.advance(hours=1)
            assert await handle.aresult("60s") == "reminded"

    asyncio.run(main())


@on_embedded_stores
def test_each_event_is_had_once_in_the_order_of_sending(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def collect(ctx: Context) -> list[Any]:
        return [await ctx.wait_for("item") for _ in range(3)]

    async def main() -> None:
        async with serving(app):
            handle = await collect.aenqueue()
            for number in range(3):
                await app.asend_event("item", number)
            assert await handle.aresult("60s") == [0, 1, 2]

    asyncio.run(main())


def test_one_event_frees_all_waiting_jobs(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def react(ctx: Context, number: int) -> Any:
        return number, await ctx.wait_for("released")

    async def main() -> None:
        async with serving(app):
            handles = await app.aenqueue_many([react.draft(number) for number in range(20)])
            for handle in handles:
                await parked(handle, "released")
            await app.asend_event("released", "1.0")
            for number, handle in enumerate(handles):
                assert await handle.aresult("60s") == [number, "1.0"]

    asyncio.run(main())


@on_embedded_stores
def test_each_run_that_ends_in_a_wait_is_counted_as_parked(bed: Bed) -> None:
    """Prevents runs that are in no counter, so that claims and outcomes do not add up."""
    app, ship, _ = waiting_app(bed)

    @app.job
    def ship_blocking(ctx: SyncContext) -> Any:
        return ctx.wait_for("paid:1", timeout="1d")

    async def main() -> None:
        async with serving(app) as worker:
            handles = await ship.aenqueue(1), await ship_blocking.aenqueue()
            for handle in handles:
                await parked(handle, "paid:1")
            await app.asend_event("paid:1")
            for handle in handles:
                await handle.aresult("60s")
            once = {"claimed": 2, "parked": 1, "completed": 1}
            await until(lambda: counted(worker) == {"ship": once, "ship_blocking": once})

    asyncio.run(main())


@on_embedded_stores
def test_a_handler_in_a_thread_waits_too(bed: Bed) -> None:
    app = bed.app()

    @app.job
    def ship(ctx: SyncContext) -> Any:
        return ctx.wait_for("paid", timeout="1d")

    with serving_in_a_thread(app):
        handle = ship.enqueue()
        asyncio.run(parked(handle, "paid"))
        app.send_event("paid", [1])
        assert handle.result("60s") == [1]


@on_embedded_stores
def test_a_retry_after_the_event_has_it_still(bed: Bed) -> None:
    app, tries = bed.app(), list[Any]()

    @app.job(retry=Retry(max_retries=2, backoff=Backoff(base=timedelta(0))))
    async def ship(ctx: Context) -> None:
        tries.append(await ctx.wait_for("paid"))
        if len(tries) < 2:
            raise ConnectionResetError

    async def main() -> None:
        async with serving(app):
            handle = await ship.aenqueue()
            await parked(handle, "paid")
            await app.asend_event("paid", 7)
            await in_state(handle, State.COMPLETED)

    asyncio.run(main())
    assert tries == [7, 7]


@on_embedded_stores
def test_a_job_that_waits_for_an_event_can_be_cancelled(bed: Bed) -> None:
    app, ship, _ = waiting_app(bed)

    async def main() -> None:
        async with serving(app):
            handle = await ship.aenqueue(42)
            await parked(handle, "paid:42")
            assert await handle.acancel() is State.CANCELLED
            await app.asend_event("paid:42")

    asyncio.run(main())


@on_embedded_stores
def test_a_wait_in_a_task_of_its_own_is_refused(bed: Bed) -> None:
    app = bed.app()

    @app.job(max_retries=3)
    async def ship(ctx: Context) -> None:
        await asyncio.gather(ctx.wait_for("paid"), ctx.wait_for("packed"))

    async def main() -> None:
        async with serving(app):
            job = await in_state(await ship.aenqueue(), State.DEAD)
            assert job.error is not None
            assert "the handler's own task" in job.error.message

    asyncio.run(main())


def test_a_park_whose_answer_was_lost_is_no_failure(bed: Bed) -> None:
    """Prevents: a job that waits as it should, and is reported as failed."""

    class Deaf(Through):
        lost = 0

        async def apply(self, names: Any, decide: Any) -> Any:
            applied = await self.inner.apply(names, decide)
            if list(names) == ["event:paid:42"] and not self.lost:
                Deaf.lost += 1
                raise StoreUnavailable("the answer was lost")
            return applied

    app, ship, _ = waiting_app(bed, store=None)
    app.store = Deaf(bed.store())

    async def main() -> None:
        async with serving(app):
            handle = await ship.aenqueue(42)
            await parked(handle, "paid:42")
            await app.asend_event("paid:42", 1)
            assert await handle.aresult("60s") == 1

    asyncio.run(main())
    assert Deaf.lost == 1


def test_events_are_forgotten_after_a_week(bed: Bed) -> None:
    clock = Clock()
    app = bed.app(store=bed.store(clock=clock))

    @app.job
    async def idle() -> None: ...

    async def main() -> None:
        await app.asend_event("paid:42")
        async with serving(app):
            await until(lambda: app.store.records("event:"))
            clock.advance(days=8)
            await until(lambda: is_forgotten(app))

    asyncio.run(main())


async def is_forgotten(app: Windlass) -> bool:
    return not await app.store.records("event:")


@on_embedded_stores
def test_an_unreadable_event_blocks_no_other(bed: Bed, caplog: pytest.LogCaptureFixture) -> None:
    app, ship, _ = waiting_app(bed)

    async def main() -> None:
        async with serving(app):
            handle = await ship.aenqueue(42)
            await parked(handle, "paid:42")
            await app.store.send([News(topic="event:paid:42", id=uuid4(), body=b"1e400")])
            await until(lambda: log_lines(caplog, "events.dropped"))
            await app.asend_event("paid:42", "card")
            assert await handle.aresult("60s") == "card"

    asyncio.run(main())
    assert [line["count"] for line in log_lines(caplog, "events.dropped")] == [1]
