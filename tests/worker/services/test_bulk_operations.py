"""Bulk operations: workers carry them on in steps, whoever dies meanwhile, on every store."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.support.app_on_store import STORES, Bed, Clock, Through, log_lines, serving, until
from windlass import ConfigError, PermanentError, State, Windlass
from windlass.core.changes import Changes
from windlass.core.jobs import bulk as core
from windlass.core.jobs.bulk import BulkOperation, BulkState, name_of
from windlass.core.search.scan import Budget
from windlass.testing import travel
from windlass.worker.services import bulk_operations
from windlass.worker.services.bulk_operations import BulkOperations

pytestmark = pytest.mark.stores(*STORES)


def on_an_app(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[[Bed], None]:
    """Give a test an app on each store; one that is made in a loop could not migrate its store."""
    return lambda bed: asyncio.run(test(bed.app()))


def on_a_clock(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[[Bed], None]:
    """Give a test an app on a store whose clock the test moves."""

    def run(bed: Bed) -> None:
        clock = Clock()
        asyncio.run(test(bed.app(store=bed.store(clock=clock)), clock))

    return run


def with_jobs(app: Windlass) -> None:
    @app.job(queue="mail", max_retries=0)
    async def send_email(to: str, fails: bool = True) -> str:
        if fails:
            raise PermanentError("no such address")
        return to


async def waiting(app: Windlass, number: int, **options: Any) -> list[UUID]:
    if "send_email" not in app.registry:
        with_jobs(app)
    producer = app.producer("send_email").using(**options)
    drafts = [producer.draft({"to": str(n)}) for n in range(number)]
    return [handle.id for handle in await app.aenqueue_many(drafts)]


async def states(app: Windlass, ids: list[UUID]) -> Counter[State]:
    jobs = await app.store.get_many(ids)
    return Counter(jobs[job_id].state for job_id in ids if job_id in jobs)


async def carry_on(app: Windlass, operation: BulkOperation, steps: int = 1_000) -> BulkOperation:
    """Do steps as one worker does."""
    service = BulkOperations(app.store)
    await service.forget([name_of(operation.id)])
    while steps and service.is_busy:
        await service.tick()
        steps -= 1
    return await app.control.abulk(operation.id)


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
        await until(_all_are(app, ids, State.DEAD))
        operation = await app.control.astart_bulk("redrive", kind="send_email", states=["dead"])
        await until(_has(app, operation, BulkState.COMPLETED))
        await until(_all_are(app, ids, State.DEAD))
        assert (await app.control.abulk(operation.id)).moved == 25
        jobs = await app.store.get_many(ids)
        assert {job.attempt for job in jobs.values()} == {2}, "each was redriven once"
        purge = await app.control.astart_bulk("purge", kind="send_email")
        await until(_has(app, purge, BulkState.COMPLETED))
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
        await until(_all_are(app, ids, State.DEAD))
        operation = await app.control.astart_bulk("redrive", states=["dead"], queue="mail")
        await until(_has(app, operation, BulkState.COMPLETED))
        await until(_all_are(app, ids, State.DEAD))
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
        await until(_has(app, operation, BulkState.COMPLETED))
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


def _all_are(app: Windlass, ids: list[UUID], state: State) -> Callable[[], Any]:
    async def check() -> bool:
        return await states(app, ids) == {state: len(ids)}

    return check


def _has(app: Windlass, operation: BulkOperation, state: BulkState) -> Callable[[], Any]:
    async def check() -> bool:
        return (await app.control.abulk(operation.id)).state is state

    return check


def _found(app: Windlass, **where: Any) -> Callable[[], Any]:
    async def check() -> bool:
        return bool((await app.control.afind(**where)).jobs)

    return check


async def _amend(app: Windlass, name: str, change: Callable[[Any], Any]) -> None:
    await app.store.apply(
        [name],
        lambda known, _: Changes(
            answer=None, records={name: known[name] | {"which": change(known[name])}}
        ),
    )
