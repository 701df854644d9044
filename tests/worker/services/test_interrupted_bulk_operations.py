"""Bulk operations outlive crashes, late steps, other releases and workers that stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.app_on_store import STORES, Bed, Clock, Through, log_lines, serving, until
from tests.worker.services.bulk_jobs import (
    all_are,
    carry_on,
    has,
    on_a_clock,
    on_an_app,
    states,
    waiting,
    with_jobs,
)
from windlass import ConfigError, State, Windlass
from windlass.core.changes import Changes
from windlass.core.jobs import bulk as core
from windlass.core.jobs.bulk import BulkState, name_of
from windlass.testing import travel
from windlass.worker.services.bulk_operations import BulkOperations

pytestmark = pytest.mark.stores(*STORES)


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "STEP", 10)


# -- how it fails ----------------------------------------------------------------------------------


class DiesAfter(Through):
    """The store of a worker that dies once it has written some steps; it is told so or not."""

    def __init__(self, inner: Any, changes: int, *, is_written: bool) -> None:
        super().__init__(inner)
        self.left = changes
        self.is_written = is_written

    async def apply(self, names: Any, decide: Any) -> Any:
        self.left -= 1
        if self.left < 0 and not self.is_written:
            raise asyncio.CancelledError
        applied = await self.inner.apply(names, decide)
        if self.left < 0:
            raise asyncio.CancelledError
        return applied


def dying(changes: int, *, is_written: bool) -> Callable[[Bed], None]:
    @on_a_clock
    async def test(app: Windlass, clock: Clock) -> None:
        ids = await waiting(app, 45)
        operation = await app.control.astart_bulk("cancel", queue="mail")
        service = BulkOperations(DiesAfter(app.store, changes, is_written=is_written))
        await service.forget([name_of(operation.id)])
        with pytest.raises(asyncio.CancelledError):
            while service.is_busy:
                await service.tick()
        before = (await app.control.abulk(operation.id)).moved
        assert (await states(app, ids))[State.CANCELLED] == before, "all of a step, or nothing"
        assert (await carry_on(app, operation)).moved == before, "it may still be at work"
        clock.advance(seconds=11)
        after = await carry_on(app, operation)
        assert (after.state, after.seen, after.moved) == (BulkState.COMPLETED, 45, 45)
        assert await states(app, ids) == {State.CANCELLED: 45}

    return test


@pytest.mark.parametrize("is_written", [True, False])
@pytest.mark.parametrize("changes", [1, 3])
def test_another_worker_carries_on_after_a_crash(
    bed: Bed, changes: int, *, is_written: bool
) -> None:
    """Nothing is moved twice, and nothing left out: each job is counted once."""
    dying(changes, is_written=is_written)(bed)


@on_an_app
async def test_a_job_that_was_redriven_and_died_again_is_not_redriven_again(
    app: Windlass,
) -> None:
    """Prevents: after a crash, a worker begins anew, and redrives what failed a second time."""
    ids = await waiting(app, 25)
    async with serving(app):
        await until(all_are(app, ids, State.DEAD))
        operation = await app.control.astart_bulk("redrive", states=["dead"], queue="mail")
        await until(has(app, operation, BulkState.COMPLETED))
        await until(all_are(app, ids, State.DEAD))
    assert await carry_on(app, operation) == await app.control.abulk(operation.id)
    jobs = await app.store.get_many(ids)
    assert {job.attempt for job in jobs.values()} == {2}


@on_a_clock
async def test_a_step_that_comes_late_does_nothing(app: Windlass, clock: Clock) -> None:
    """Prevents: a worker that stood still sets back what another one has done since."""
    ids = await waiting(app, 45)
    operation = await app.control.astart_bulk("cancel", queue="mail")

    class Slow(Through):
        async def find(self, *args: Any, **options: Any) -> Any:
            page = await self.inner.find(*args, **options)
            clock.advance(seconds=11)
            assert (await carry_on(app, operation, steps=3)).moved == 30
            return page

    service = BulkOperations(Slow(app.store))
    await service.forget([name_of(operation.id)])
    await service.tick()
    assert not service.is_busy, "it is another worker's"
    assert (await app.control.abulk(operation.id)).seen == 30
    clock.advance(seconds=11)
    after = await carry_on(app, operation)
    assert (after.seen, after.moved, after.state) == (45, 45, BulkState.COMPLETED)
    assert await states(app, ids) == {State.CANCELLED: 45}


@on_an_app
async def test_several_workers_at_once_move_each_job_once(app: Windlass) -> None:
    ids = await waiting(app, 95)
    operation = await app.control.astart_bulk("cancel", queue="mail")
    await asyncio.gather(*(carry_on(app, operation) for _ in range(5)))
    after = await app.control.abulk(operation.id)
    assert (after.seen, after.moved, after.state) == (95, 95, BulkState.COMPLETED)
    assert await states(app, ids) == {State.CANCELLED: 95}


@on_an_app
async def test_jobs_that_change_before_their_step_are_counted_as_refused(app: Windlass) -> None:
    ids = await waiting(app, 5)

    class Changing(Through):
        async def find(self, *args: Any, **options: Any) -> Any:
            page = await self.inner.find(*args, **options)
            await app.control.acancel(ids[1])
            return page

    operation = await app.control.astart_bulk("cancel", queue="mail")
    service = BulkOperations(Changing(app.store))
    await service.forget([name_of(operation.id)])
    await service.tick()
    after = await app.control.abulk(operation.id)
    assert (after.seen, after.moved, after.refused) == (5, 4, 1)


def test_an_operation_that_cannot_go_on_is_paused_and_says_why(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Through):
        async def find(self, *_: Any, **__: Any) -> Any:
            raise LookupError("a row is broken")

    app = bed.app()

    async def main() -> None:
        await waiting(app, 5)
        operation = await app.control.astart_bulk("cancel", queue="mail")
        service = BulkOperations(Broken(app.store))
        await service.forget([name_of(operation.id)])
        await service.tick()
        after = await app.control.abulk(operation.id)
        assert (after.state, after.error) == (BulkState.PAUSED, "LookupError: a row is broken")
        await app.control.aresume_bulk(operation.id)
        assert (await carry_on(app, operation)).moved == 5
        assert (await app.control.abulk(operation.id)).error == ""

    asyncio.run(main())
    assert log_lines(caplog, "bulk.failed")


def test_an_operation_of_a_later_release_is_left_to_its_workers(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    """Prevents: a worker ignores a condition that it does not know, and purges all jobs."""
    app = bed.app()

    async def main() -> None:
        ids = await waiting(app, 5)
        operation = await app.control.astart_bulk("cancel", queue="mail")
        name = name_of(operation.id)
        await _amend(app, name, lambda record: record["which"] | {"colour": "red"})
        service = BulkOperations(app.store)
        await service.forget([name])
        await service.tick()
        await service.forget([name])
        assert not service.is_busy, "it is not read again and again"
        assert await states(app, ids) == {State.PENDING: 5}
        assert await app.control.abulks() == []
        await _amend(app, name, lambda record: {"queue": "mail", "states": ["pending"]})
        assert (await carry_on(app, operation)).moved == 5

    asyncio.run(main())
    assert len(log_lines(caplog, "bulk.unread")) == 1


@on_an_app
async def test_a_worker_that_stops_leaves_the_rest_to_others_at_once(app: Windlass) -> None:
    ids = await waiting(app, 35)
    operation = await app.control.astart_bulk("cancel", queue="mail")
    service = BulkOperations(app.store)
    await service.forget([name_of(operation.id)])
    await service.tick()
    assert (await app.control.abulk(operation.id)).held_until is not None
    await service.stop()
    assert (await carry_on(app, operation)).state is BulkState.COMPLETED
    assert await states(app, ids) == {State.CANCELLED: 35}


@on_a_clock
async def test_an_operation_that_ended_is_deleted_after_a_month(
    app: Windlass, clock: Clock
) -> None:
    operation = await app.control.astart_bulk("cancel", queue="mail")
    assert (await carry_on(app, operation)).state is BulkState.COMPLETED
    clock.advance(days=29)
    assert not (await app.store.ringing(10)).records
    clock.advance(days=1)
    assert list((await app.store.ringing(10)).records) == [name_of(operation.id)]
    with pytest.raises(ConfigError):
        await carry_on(app, operation)


@on_an_app
async def test_ended_jobs_of_a_flow_that_is_under_way_are_kept(app: Windlass) -> None:
    go = asyncio.Event()

    @app.job
    async def one() -> int:
        return 1

    @app.job
    async def two() -> int:
        await go.wait()
        return 2

    flow = app.flow("sum")
    node = flow.add(one.draft())
    flow.add(two.draft(), after=[node])
    handle = await flow.aenqueue()
    async with serving(app):
        await until(_found(app, kind="one", states=["completed"]))
        operation = await app.control.astart_bulk("purge", kind="one")
        await until(has(app, operation, BulkState.COMPLETED))
        kept = await app.control.abulk(operation.id)
        assert (kept.seen, kept.moved) == (1, 0)
        go.set()
        await handle.aresult(timeout="30s")


@pytest.mark.stores("memory")
def test_an_operation_goes_on_as_time_passes_in_a_travel(bed: Bed) -> None:
    app = bed.app()
    with_jobs(app)
    with travel(app, queues="nothing") as t:
        for number in range(35):
            app.enqueue("send_email", {"to": str(number)})
        slow = app.control.start_bulk("cancel", queue="mail", limit=6, rate="2/s")
        t.run_due()
        assert app.control.bulk(slow.id).moved == 2
        t.advance("1s")
        assert app.control.bulk(slow.id).moved == 4
        t.advance("1m")
        assert app.control.bulk(slow.id).state is BulkState.COMPLETED
        at_once = app.control.start_bulk("cancel", queue="mail")
        t.run_due()
        assert app.control.bulk(at_once.id).moved == 29
        ended = app.control.start_bulk("purge", queue="mail")
        t.run_due()
        assert app.control.bulk(ended.id).moved == 35, "though no job waits for anything"


def _found(app: Windlass, **where: Any) -> Callable[[], Any]:
    async def check() -> bool:
        return bool((await app.jobs.afind(**where)).jobs)

    return check


async def _amend(app: Windlass, name: str, change: Callable[[Any], Any]) -> None:
    await app.store.apply(
        [name],
        lambda known, _: Changes(
            answer=None, records={name: known[name] | {"which": change(known[name])}}
        ),
    )
