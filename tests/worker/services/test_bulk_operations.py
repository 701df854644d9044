"""Bulk operations: workers carry them on in steps, whoever dies meanwhile, on every store."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from tests.support.app_on_store import STORES, Clock, Through, serving, until
from tests.worker.services.bulk_jobs import (
    all_are,
    carry_on,
    has,
    on_a_clock,
    on_an_app,
    states,
    waiting,
)
from windlass import ConfigError, State, Windlass
from windlass.core.jobs import bulk as core
from windlass.core.jobs.bulk import BulkState, name_of
from windlass.core.search.scan import Budget
from windlass.worker.services import bulk_operations
from windlass.worker.services.bulk_operations import BulkOperations

pytestmark = pytest.mark.stores(*STORES)


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "STEP", 10)


# -- what it does ----------------------------------------------------------------------------------


@on_an_app
async def test_an_operation_takes_a_search(app: Windlass) -> None:
    ids = await waiting(app, 25)
    operation = await app.control.astart_bulk("cancel", search="payload.to:1* since:1h -queue:bulk")
    assert operation.matched == 11
    after = await carry_on(app, operation)
    assert (after.state, after.moved) == (BulkState.COMPLETED, 11)
    assert await states(app, ids) == {State.CANCELLED: 11, State.PENDING: 14}
    (entry, *_) = (await app.control.aaudit(limit=1)).entries
    assert "search='payload.to:1* -queue:bulk'" in entry.detail


@on_an_app
async def test_an_operation_moves_all_jobs_that_meet_its_conditions(app: Windlass) -> None:
    ids = await waiting(app, 35)
    others = await waiting(app, 3, queue="other")
    operation = await app.control.astart_bulk("cancel", queue="mail", reason="a wrong template")
    assert (operation.state, operation.matched, operation.moved) == (BulkState.RUNNING, 35, 0)
    assert await states(app, ids) == {State.PENDING: 35}, "nothing moves before a worker comes"
    after = await carry_on(app, operation)
    assert (after.state, after.seen, after.moved, after.refused) == (BulkState.COMPLETED, 35, 35, 0)
    assert await states(app, ids) == {State.CANCELLED: 35}
    assert await states(app, others) == {State.PENDING: 3}
    job = await app.store.get(ids[0])
    assert job is not None
    assert job.reason == "a wrong template"


@on_an_app
async def test_workers_carry_on_an_operation(app: Windlass) -> None:
    ids = await waiting(app, 25)
    async with serving(app):
        await until(all_are(app, ids, State.DEAD))
        operation = await app.control.astart_bulk("redrive", kind="send_email", states=["dead"])
        await until(has(app, operation, BulkState.COMPLETED))
        await until(all_are(app, ids, State.DEAD))
        assert (await app.control.abulk(operation.id)).moved == 25
        jobs = await app.store.get_many(ids)
        assert {job.attempt for job in jobs.values()} == {2}, "each was redriven once"
        purge = await app.control.astart_bulk("purge", kind="send_email")
        await until(has(app, purge, BulkState.COMPLETED))
    assert await app.store.get_many(ids) == {}


@on_an_app
async def test_jobs_that_are_enqueued_later_are_left_alone(app: Windlass) -> None:
    ids = await waiting(app, 15)
    operation = await app.control.astart_bulk("cancel", queue="mail")
    await asyncio.sleep(0.002)  # An id of a later millisecond: the next jobs come after the others.
    later = await waiting(app, 15)
    after = await carry_on(app, operation)
    assert (after.state, after.moved) == (BulkState.COMPLETED, 15)
    assert await states(app, ids) == {State.CANCELLED: 15}
    assert await states(app, later) == {State.PENDING: 15}


@on_a_clock
async def test_ages_count_from_the_start(app: Windlass, clock: Clock) -> None:
    """Prevents: a slow operation reaches jobs that were too young when it was started."""
    old = await waiting(app, 3)
    clock.advance(hours=1)
    young = await waiting(app, 3)
    clock.advance(minutes=10)
    operation = await app.control.astart_bulk("cancel", queue="mail", older_than="30m")
    recent = await app.control.astart_bulk("retry", queue="mail", newer_than="30m")
    clock.advance(hours=2)
    assert (await carry_on(app, operation)).moved == 3
    assert await states(app, old) == {State.CANCELLED: 3}
    assert await states(app, young) == {State.PENDING: 3}
    assert (await carry_on(app, recent)).state is BulkState.COMPLETED


@on_an_app
async def test_a_limit_ends_an_operation(app: Windlass) -> None:
    ids = await waiting(app, 25)
    operation = await app.control.astart_bulk("cancel", queue="mail", limit=13)
    assert operation.matched == 13
    after = await carry_on(app, operation)
    assert (after.state, after.moved) == (BulkState.COMPLETED, 13)
    assert await states(app, ids[:13]) == {State.CANCELLED: 13}


@on_a_clock
async def test_a_rate_bounds_how_many_jobs_are_moved_in_a_time(app: Windlass, clock: Clock) -> None:
    await waiting(app, 10)
    operation = await app.control.astart_bulk("cancel", queue="mail", rate="3/s")
    moved = []
    for _ in range(5):
        moved.append((await carry_on(app, operation)).moved)
        assert (await carry_on(app, operation)).moved == moved[-1], "not before the second is over"
        clock.advance(seconds=1)
    assert moved == [3, 6, 9, 10, 10]
    slow = await app.control.astart_bulk("purge", queue="mail", rate="5/m")
    assert (await carry_on(app, slow)).moved == 1
    clock.advance(seconds=11)
    assert (await carry_on(app, slow)).moved == 1
    clock.advance(seconds=1)
    assert (await carry_on(app, slow)).moved == 2


@on_a_clock
async def test_a_step_looks_at_a_bounded_number_of_jobs(app: Windlass, clock: Clock) -> None:
    """Prevents: one step reads millions of jobs, since few of them meet the conditions."""
    await waiting(app, 700)
    ids = await waiting(app, 5, key="acme")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk_operations, "_STEP_BUDGET", Budget(rows=300))
        operation = await app.control.astart_bulk("cancel", queue="mail", key="acme")
        assert operation.matched == 5
        first = await carry_on(app, operation, steps=1)
        assert (first.state, first.seen) == (BulkState.RUNNING, 0)
        assert first.cursor is not None, "the next step continues where this one ended"
        clock.advance(seconds=11)
        after = await carry_on(app, operation)
    assert (after.state, after.moved) == (BulkState.COMPLETED, 5)
    assert await states(app, ids) == {State.CANCELLED: 5}


# -- its levers ------------------------------------------------------------------------------------


@on_an_app
async def test_an_operation_is_paused_resumed_and_stopped(app: Windlass) -> None:
    ids = await waiting(app, 45)
    operation = await app.control.astart_bulk("cancel", queue="mail")
    assert (await carry_on(app, operation, steps=1)).moved == 10
    assert (await app.control.apause_bulk(operation.id)).state is BulkState.PAUSED
    assert (await carry_on(app, operation)).moved == 10
    assert (await app.control.aresume_bulk(operation.id)).state is BulkState.RUNNING
    assert (await carry_on(app, operation, steps=2)).moved == 30
    stopped = await app.control.astop_bulk(operation.id)
    assert (stopped.state, stopped.moved) == (BulkState.STOPPED, 30)
    assert await app.control.aresume_bulk(operation.id) == stopped, "its end is final"
    assert await app.control.apause_bulk(operation.id) == stopped
    assert (await carry_on(app, operation)).moved == 30
    assert await states(app, ids) == {State.CANCELLED: 30, State.PENDING: 15}
    acted = [(each.action, each.subject) for each in (await app.control.aaudit()).entries]
    subject = f"bulk:{operation.id}"
    assert acted == [(verb, subject) for verb in ("stop", "resume", "pause", "cancel")]


@on_an_app
async def test_a_pause_during_a_step_lets_that_step_do_nothing(app: Windlass) -> None:
    ids = await waiting(app, 15)
    operation = await app.control.astart_bulk("cancel", queue="mail")

    class Pausing(Through):
        async def find(self, *args: Any, **options: Any) -> Any:
            await app.control.apause_bulk(operation.id)
            return await self.inner.find(*args, **options)

    service = BulkOperations(Pausing(app.store))
    await service.forget([name_of(operation.id)])
    await service.tick()
    assert await states(app, ids) == {State.PENDING: 15}
    after = await app.control.abulk(operation.id)
    assert (after.state, after.seen) == (BulkState.PAUSED, 0)


@on_an_app
async def test_the_entry_of_an_operation_has_its_number(app: Windlass) -> None:
    await waiting(app, 15)
    control = app.control.acting_as("ada", via="web", reason="INC-42")
    operation = await control.astart_bulk("cancel", queue="mail", rate="1000/s")
    assert (operation.by, operation.via, operation.reason) == ("ada", "web", "INC-42")
    while (await carry_on(app, operation)).state is BulkState.RUNNING:
        pass
    (entry,) = (await app.control.aaudit()).entries
    assert (entry.action, entry.count, entry.by, entry.reason) == ("cancel", 15, "ada", "INC-42")
    assert entry.detail == "states=scheduled,pending,running queue=mail rate=1000/s"


@on_an_app
async def test_operations_are_listed_and_wrong_ones_refused(app: Windlass) -> None:
    first = await app.control.astart_bulk("cancel", queue="mail")
    second = await app.control.astart_bulk("purge", queue="mail")
    assert [each.id for each in await app.control.abulks()] == [second.id, first.id]
    with pytest.raises(ConfigError, match="there is no bulk operation"):
        await app.control.abulk(uuid4())
    with pytest.raises(ConfigError, match="there is no bulk operation"):
        await app.control.astop_bulk(uuid4())
    with pytest.raises(ValueError, match="verb must be one of cancel, retry, redrive, purge"):
        await app.control.astart_bulk("park", queue="mail")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cancel must be given a condition"):
        await app.control.astart_bulk("cancel")
    with pytest.raises(ValueError, match="a rate must be a number per unit of time"):
        await app.control.astart_bulk("cancel", queue="mail", rate="fast")
    with pytest.raises(ValueError, match="limit must be at least 1, got 0"):
        await app.control.astart_bulk("cancel", queue="mail", limit=0)
    assert len(await app.control.abulks()) == 2
