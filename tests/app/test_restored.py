"""A restored store: what was done after its backup does not run again without a person."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from tests.support.app_on_store import STORES, Bed, Clock, in_state, serving, until
from windlass import ConfigError, Context, Handle, State, Windlass
from windlass.core.claims.lanes import Ask, Claim
from windlass.core.jobs.bulk import BulkState
from windlass.core.jobs.settle import Transition
from windlass.core.restored import PARKED, PARKED_WAIT, RECORD, Parked
from windlass.core.why.reason import Cause
from windlass.core.workers import WorkerInfo
from windlass.store import Store

pytestmark = pytest.mark.stores(*STORES)
TOKEN = 7
INFO = WorkerInfo(
    id="lost", name="lost", host="here", pid=1, release="1", lease=timedelta(minutes=1), slots=9
)


def on_an_app(test: Callable[[Windlass], Coroutine[Any, Any, None]]) -> Callable[[Bed], None]:
    """Give a test an app on each store; one that is made in a loop could not migrate its store."""
    return lambda bed: asyncio.run(test(bed.app()))


def with_handlers(app: Windlass) -> tuple[Any, list[str]]:
    done: list[str] = []

    @app.job
    async def charge(order: str) -> str:
        done.append(order)
        return order

    return charge, done


async def started(store: Store, *handles: Handle[Any], worker: WorkerInfo = INFO) -> None:
    """Let a worker claim jobs, and nothing more."""
    await store.register(worker)
    for handle in handles:
        ask = Ask(lane=(await handle.ainfo()).lane, count=1)
        assert await store.claim(Claim(asks=(ask,)), worker=worker.id, token=TOKEN)


async def lost(store: Store, *handles: Handle[Any]) -> None:
    """Leave jobs running under a lease that has ended, as they are in a backup."""
    await started(store, *handles)
    await store.retire(INFO.id)


@on_an_app
async def test_jobs_that_ran_or_waited_in_the_backup_wait_for_a_person(app: Windlass) -> None:
    charge, done = with_handlers(app)
    running = await charge.aenqueue("ran")
    await lost(app.store, running)
    pending, later = await charge.aenqueue("due"), await charge.using(delay="1h").aenqueue("later")
    counted = await app.control.apark_restored(dry_run=True)
    assert (counted.running, counted.waiting, counted.jobs) == (1, 2, 3)
    assert (await running.ainfo()).state is State.RUNNING, "a dry run changes nothing"

    parked = await app.control.apark_restored()
    assert parked == Parked(running=1, waiting=2)
    for handle in (running, pending, later):
        job = await handle.ainfo()
        assert (job.state, job.waiting_for, job.failures) == (State.SCHEDULED, PARKED, 0)
    assert [each.id for each in await app.control.arestored()] == [
        running.id,
        pending.id,
        later.id,
    ]
    new = await charge.aenqueue("new")
    async with serving(app):
        await in_state(new, State.COMPLETED)
        assert done == ["new"]
        assert await app.control.arelease_restored([running.id]) == [running.id]
        await in_state(running, State.COMPLETED)
        assert await app.control.acancel_restored([pending.id]) == [pending.id]
        assert (await pending.ainfo()).state is State.CANCELLED
    assert done == ["new", "ran"]
    assert await app.control.arelease_restored(kind="other") == []
    assert await app.control.arelease_restored() == [later.id]
    job = await later.ainfo()
    assert (job.state, job.waiting_for) == (State.SCHEDULED, None), "it is due when it was"
    assert not await app.store.records(RECORD)


@on_an_app
async def test_parking_can_be_repeated(app: Windlass) -> None:
    charge, _ = with_handlers(app)
    running = await charge.aenqueue("ran")
    await lost(app.store, running)
    await charge.aenqueue("due")
    assert (await app.control.apark_restored()).jobs == 2
    assert (await app.control.apark_restored()).jobs == 0
    (last, first) = (await app.control.aaudit()).entries
    assert (first.action, first.subject, first.count) == ("park", "jobs", 1)
    assert (last.action, last.count) == ("park", 0)


@on_an_app
async def test_nothing_is_parked_while_a_worker_is_alive(app: Windlass) -> None:
    charge, _ = with_handlers(app)
    running = await charge.aenqueue("runs")
    await started(app.store, running)
    for dry_run in (True, False):
        with pytest.raises(ConfigError, match=r"workers must be stopped .* 1 alive \(lost\)"):
            await app.control.apark_restored(dry_run=dry_run)
    assert (await running.ainfo()).state is State.RUNNING


@on_an_app
async def test_a_worker_that_outlived_the_restore_cannot_record_its_run(app: Windlass) -> None:
    charge, _ = with_handlers(app)
    running = await charge.aenqueue("ran")
    await lost(app.store, running)
    await app.control.apark_restored()
    late = Transition(id=running.id, token=TOKEN, state=State.COMPLETED)
    assert await app.store.settle([late]) == [False]


def with_waits(app: Windlass) -> tuple[Any, list[Any]]:
    got: list[Any] = []

    @app.job
    async def ship(ctx: Context, order: int) -> None:
        got.append(await ctx.wait_for(f"paid:{order}", timeout="3d"))

    return ship, got


@on_an_app
async def test_a_job_that_waited_for_an_event_gets_one_that_came_while_it_was_parked(
    app: Windlass,
) -> None:
    ship, got = with_waits(app)
    waiting, patient = await ship.aenqueue(1), await ship.aenqueue(2)

    async def is_waiting(handle: Any, waiting_for: str) -> bool:
        return bool((await handle.ainfo()).waiting_for == waiting_for)

    async with serving(app):
        await until(lambda: is_waiting(waiting, "event:paid:1"))
        await until(lambda: is_waiting(patient, "event:paid:2"))
    until_when = (await patient.ainfo()).due_at
    assert (await app.control.apark_restored()).waiting == 2
    assert (await waiting.ainfo()).waiting_for == PARKED_WAIT
    assert (await app.control.awhy(waiting.id)).reasons[0].cause is Cause.PARKED
    await app.asend_event("paid:1", "cash")
    async with serving(app):
        await until(lambda: has_heard(app))
        assert not got
        assert len(await app.control.arelease_restored()) == 2
        await in_state(waiting, State.COMPLETED)
        await until(lambda: is_waiting(patient, "event:paid:2"))
    assert got == ["cash"]
    assert (await patient.ainfo()).due_at == until_when


async def has_heard(app: Windlass) -> bool:
    return not await app.store.topics(1)


@on_an_app
async def test_a_flow_goes_no_further_than_its_parked_jobs(app: Windlass) -> None:
    charge, done = with_handlers(app)
    flow = app.flow("order")
    flow.add(charge.draft("second"), after=[flow.add(charge.draft("first"))])
    handle = await flow.aenqueue()
    parked = await app.control.apark_restored()
    assert (parked.waiting, parked.following) == (1, 2)
    async with serving(app):
        assert len(await app.control.arelease_restored()) == 1
        await in_state(handle, State.COMPLETED)
    assert done == ["first", "second"]


@on_an_app
async def test_a_job_whose_turn_had_come_unnoticed_is_parked_too(app: Windlass) -> None:
    """Prevents a job of a flow from starting with the first worker, since its parent had ended."""
    charge, done = with_handlers(app)
    flow = app.flow("order")
    flow.add(charge.draft("second"), after=[flow.add(charge.draft("first"))])
    handle = await flow.aenqueue()
    (ready,) = (await app.store.sweep()).heads
    await app.store.register(INFO)
    claim = Claim(asks=(Ask(lane=ready.lane, count=1),))
    (job,) = await app.store.claim(claim, worker=INFO.id, token=TOKEN)
    assert await app.store.settle([Transition(id=job.id, token=TOKEN, state=State.COMPLETED)])
    await app.store.retire(INFO.id)
    assert await app.store.topics(1), "no worker has heard of its end"

    assert (await app.control.apark_restored()).waiting == 1
    new = await charge.aenqueue("new")
    async with serving(app):
        await in_state(new, State.COMPLETED)
        assert done == ["new"]
        await app.control.arelease_restored()
        await in_state(handle, State.COMPLETED)
    assert done == ["new", "second"]


def test_ticks_of_the_time_since_the_backup_are_left_out(bed: Bed) -> None:
    clock = Clock()
    app = bed.app(store=bed.store(clock=clock))
    charge, done = with_handlers(app)

    async def main() -> None:
        await app.schedules.aput("hourly", charge.draft("tick"), every="1h", catch_up="all")
        paused = await app.schedules.aput("paused", charge.draft("tick"), every="1h")
        await app.schedules.apause(paused.name)
        clock.advance(hours=5, minutes=30)
        counted = await app.control.apark_restored(dry_run=True)
        parked = await app.control.apark_restored()
        assert parked.schedules == counted.schedules == ("hourly",)
        (upcoming, *_) = await app.schedules.aupcoming("hourly")
        assert clock.now < upcoming <= clock.now + timedelta(hours=1)
        assert (await app.schedules.aget("paused")).record.paused_at is not None
        new = await charge.aenqueue("new")
        async with serving(app):
            await in_state(new, State.COMPLETED)
        assert done == ["new"]
        assert (await app.control.apark_restored()).schedules == ()

    asyncio.run(main())


@on_an_app
async def test_a_bulk_operation_that_was_under_way_waits_for_a_person(app: Windlass) -> None:
    charge, _ = with_handlers(app)
    await charge.aenqueue("due")
    operation = await app.control.astart_bulk("cancel", kind="charge")
    parked = await app.control.apark_restored()
    assert parked.bulk_operations == (str(operation.id),)
    assert (await app.control.abulk(operation.id)).state is BulkState.PAUSED
    await app.control.aresume_bulk(operation.id)
    assert (await app.control.abulk(operation.id)).state is BulkState.RUNNING


@on_an_app
async def test_only_jobs_that_are_parked_are_released_or_cancelled(app: Windlass) -> None:
    charge, _ = with_handlers(app)
    parked = await charge.aenqueue("old")
    await app.control.apark_restored()
    new = await charge.using(delay="1h").aenqueue("new")
    assert await app.control.arelease_restored([new.id]) == []
    assert await app.control.acancel_restored([new.id]) == []
    assert (await new.ainfo()).state is State.SCHEDULED
    found = await app.control.arestored(search="payload.order:old")
    assert [each.id for each in found] == [parked.id]
    assert await app.control.arestored(search="payload.order:new") == []
