"""A job that is run here and settled is taken out of its queue, and recorded as by a worker."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import psycopg
import pytest

from tests.support.app_on_store import STORES, Bed, in_state, serving
from windlass import Context, Job, State, Windlass
from windlass.app.local_runs.local_run import LocalRun, run_here
from windlass.core.changes import Changes
from windlass.core.errors import InvalidTransition, LeaseLost, StoreUnavailable
from windlass.core.jobs.moves import Move, Verb
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.streams import BEGIN
from windlass.core.workflows.step_log import Steps

on_every_store = pytest.mark.stores(*STORES)


async def settle_here(app: Windlass, job_id: Any) -> tuple[LocalRun, Job]:
    """Run a job here and settle it; return both as they are after it."""
    ended = await run_here(app, job_id, settle=True)
    job = await app.store.get(job_id)
    assert job is not None
    return ended, job


@on_every_store
def test_a_dead_job_completes_here_and_that_is_recorded(bed: Bed) -> None:
    app = bed.app()
    is_mended = False

    @app.job(max_retries=0)
    async def ship(ctx: Context, order: int) -> str:
        await ctx.step("pack", str, order)
        if not is_mended:
            raise ConnectionError
        await ctx.stream("packed")
        await ctx.step("send", str, order)
        ctx.progress(0.5, "half way")
        return "shipped"

    async def main() -> None:
        nonlocal is_mended
        async with serving(app):
            handle = await ship.aenqueue(7)
            await in_state(handle, State.DEAD)
        await app.store.open()
        is_mended = True
        ended, job = await settle_here(app, handle.id)
        assert (ended.recorded, ended.error) == (True, None)
        assert (job.state, job.result, job.attempt) == (State.COMPLETED, b'"shipped"', 2)
        assert Steps(job.steps).names == ["pack", "send"]
        assert job.progress is not None
        assert job.progress.fraction == 0.5
        assert len((await app.store.stream_read(handle.id, BEGIN, 10)).groups) == 1
        (entry,) = (await app.control.aaudit()).entries
        assert (entry.action, entry.subject) == ("run", f"job:{handle.id}")
        assert not [worker for worker in await app.store.workers() if not worker.ended]
        await app.aclose()

    asyncio.run(main())


def test_progress_whose_writing_is_cancelled_by_the_end_of_the_run_is_written_at_the_end(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = bed.app()
    writing = asyncio.Event()
    written = app.store.progress

    async def hang(*_: Any) -> bool:
        monkeypatch.setattr(app.store, "progress", written)
        writing.set()
        return await asyncio.Future()

    @app.job
    async def ship(ctx: Context) -> None:
        ctx.progress(0.5, "half way")
        await writing.wait()

    async def main() -> None:
        handle = await ship.aenqueue()
        monkeypatch.setattr(app.store, "progress", hang)
        _, job = await settle_here(app, handle.id)
        assert job.progress is not None
        assert job.progress.fraction == 0.5
        await app.aclose()

    asyncio.run(main())


@on_every_store
def test_a_run_that_is_cancelled_while_its_last_progress_is_written_is_settled(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = bed.app()
    may_write, written = asyncio.Event(), app.store.progress
    writing: list[asyncio.Event] = [asyncio.Event(), asyncio.Event()]
    under_way = iter(writing)

    async def wait_and_write(*arguments: Any) -> bool:
        next(under_way).set()
        await may_write.wait()
        return await written(*arguments)

    @app.job
    async def ship(ctx: Context) -> None:
        ctx.progress(0.5, "half way")
        await writing[0].wait()

    async def main() -> None:
        handle = await ship.aenqueue()
        monkeypatch.setattr(app.store, "progress", wait_and_write)
        running = asyncio.create_task(settle_here(app, handle.id))
        await writing[1].wait()  # The handler has ended.
        running.cancel()
        await asyncio.sleep(0)
        may_write.set()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await handle.astate() is State.COMPLETED
        await app.aclose()

    asyncio.run(main())


@on_every_store
def test_a_failure_here_is_an_attempt_like_any_other(bed: Bed) -> None:
    app = bed.app()

    @app.job(max_retries=1)
    async def charge() -> None:
        raise ValueError("declined")

    async def main() -> None:
        await app.store.open()
        handle = await charge.aenqueue()
        ended, job = await settle_here(app, handle.id)
        assert isinstance(ended.error, ValueError)
        assert (job.state, job.failures, len(job.history)) == (State.SCHEDULED, 1, 1)
        ended, job = await settle_here(app, handle.id)  # It waits for its retry.
        assert (job.state, job.attempt, len(job.history)) == (State.DEAD, 2, 2)
        await app.aclose()

    asyncio.run(main())


@pytest.mark.parametrize("bed", ["postgres"], indirect=True)
def test_a_transaction_of_the_handler_is_committed_with_the_outcome(bed: Bed) -> None:
    app = bed.app()
    with psycopg.connect(bed.url) as db:
        db.execute("CREATE TABLE paid (number int)")

    @app.job
    async def pay(ctx: Context, number: int) -> None:
        async with ctx.transaction() as conn:
            await conn.execute("INSERT INTO paid VALUES (%s)", [number])

    async def main() -> None:
        await app.store.open()
        handle = await pay.aenqueue(7)
        ended, job = await settle_here(app, handle.id)
        assert (ended.recorded, ended.transactions, ended.next) == (True, 0, None)
        assert job.state is State.COMPLETED
        await app.aclose()

    asyncio.run(main())
    with psycopg.connect(bed.url) as db:
        assert db.execute("SELECT number FROM paid").fetchall() == [(7,)]


@on_every_store
def test_no_worker_runs_a_job_that_runs_here(bed: Bed) -> None:
    app = bed.app()
    runs, release = 0, asyncio.Event()

    @app.job
    async def work() -> None:
        nonlocal runs
        runs += 1
        await release.wait()

    @app.job
    async def other() -> None:
        return None

    async def main() -> None:
        await app.store.open()
        handle = await work.aenqueue()
        here = asyncio.create_task(run_here(app, handle.id, settle=True))
        await in_state(handle, State.RUNNING)
        await other.aenqueue()
        await app.arun_worker(burst=True, metrics_port=0)
        release.set()
        assert (await here).recorded
        assert runs == 1
        await app.aclose()

    asyncio.run(main())


def test_a_run_that_is_broken_off_gives_its_job_back(bed: Bed) -> None:
    app = bed.app()
    began = asyncio.Event()

    @app.job
    async def work() -> None:
        began.set()
        await asyncio.Event().wait()

    async def main() -> None:
        await app.store.open()
        handle = await work.aenqueue()
        here = asyncio.create_task(run_here(app, handle.id, settle=True))
        await began.wait()
        here.cancel()
        with pytest.raises(asyncio.CancelledError):
            await here
        job = await app.store.get(handle.id)
        assert job is not None
        assert (job.state, job.failures, job.worker) == (State.PENDING, 0, None)
        await app.aclose()

    asyncio.run(main())


def test_a_job_that_was_cancelled_or_has_expired_is_not_run(bed: Bed) -> None:
    app = bed.app()
    runs: list[int] = []

    @app.job
    async def work(number: int) -> None:
        runs.append(number)

    async def main() -> None:
        await app.store.open()
        handle = await work.using(expires="1us").aenqueue(1)
        ended, job = await settle_here(app, handle.id)
        assert (job.state, ended.recorded, runs) == (State.CANCELLED, True, [])
        await app.aclose()

    asyncio.run(main())


def test_a_thread_has_ended_before_its_job_is_given_back(bed: Bed) -> None:
    """Prevents: a worker runs a job while the thread of the run that was broken off goes on."""
    app = bed.app()
    began, release, ended = (threading.Event() for _ in range(3))

    @app.job
    def work() -> None:
        began.set()
        assert release.wait(60)
        ended.set()

    async def main() -> None:
        await app.store.open()
        handle = await work.aenqueue()
        here = asyncio.create_task(run_here(app, handle.id, settle=True))
        assert await asyncio.to_thread(began.wait, 60)
        here.cancel()
        await asyncio.sleep(0.05)
        assert await handle.astate() is State.RUNNING
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await here
        assert ended.is_set()
        assert await handle.astate() is State.PENDING
        await app.aclose()

    asyncio.run(main())


def test_an_outcome_is_written_however_often_that_has_to_be_tried(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = bed.app()
    monkeypatch.setattr("windlass.app.local_runs.records._AGAIN_SECONDS", 0.01)

    @app.job
    async def work() -> int:
        return 7

    async def main() -> None:
        await app.store.open()
        settle, calls = app.store.settle, 0

        async def fail_twice(moves: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls <= 2:
                raise StoreUnavailable("away")
            return await settle(moves)

        monkeypatch.setattr(app.store, "settle", fail_twice)
        handle = await work.aenqueue()
        _, job = await settle_here(app, handle.id)
        assert (job.state, calls) == (State.COMPLETED, 3)
        await app.aclose()

    asyncio.run(main())


def test_an_outcome_that_comes_too_late_is_an_error(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def work() -> None:
        (holder,) = await app.store.workers()
        (held,) = await app.store.held(holder.info.id)
        assert held.token is not None
        ending = Transition(id=held.id, token=held.token, state=State.CANCELLED)
        assert await app.store.settle([ending]) == [True]

    async def main() -> None:
        await app.store.open()
        handle = await work.aenqueue()
        with pytest.raises(LeaseLost):
            await run_here(app, handle.id, settle=True)
        assert await handle.astate() is State.CANCELLED
        await app.aclose()

    asyncio.run(main())


def test_a_job_that_ran_or_waits_for_something_else_is_not_taken(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def work() -> None:
        return None

    async def main() -> None:
        await app.store.open()
        done = await work.aenqueue()
        await settle_here(app, done.id)
        with pytest.raises(InvalidTransition, match="without --settle"):
            await run_here(app, done.id, settle=True, again=True)
        parked = await work.aenqueue()
        park = Move(verb=Verb.PARK, id=parked.id, waiting_for="flow:1")
        await app.store.apply([], lambda _records, _now: Changes(answer=None, moves=[park]))
        with pytest.raises(InvalidTransition, match="it waits for 'flow:1'"):
            await run_here(app, parked.id, settle=True)
        await app.aclose()

    asyncio.run(main())
