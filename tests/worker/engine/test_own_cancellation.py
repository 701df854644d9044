"""A handler that cancels its own task has failed: only a cancellation from outside gives back."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any

import pytest

from tests.support.app_on_store import Bed, in_state, on_embedded_stores, serving
from windlass import CallNext, Context, Job, Retry, State, Windlass
from windlass.core.jobs.job import ErrorInfo

OWN = "asyncio.exceptions.CancelledError"


def own_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def at_once() -> None:
    own_task().cancel()
    await asyncio.sleep(0.01)


async def from_a_child_task() -> None:
    parent = own_task()

    async def cancel() -> None:
        parent.cancel()

    await asyncio.gather(cancel(), asyncio.Event().wait())


async def by_a_timer() -> None:
    asyncio.get_running_loop().call_later(0.001, own_task().cancel)
    await asyncio.Event().wait()


async def from_a_thread() -> None:
    loop, task = asyncio.get_running_loop(), own_task()
    threading.Thread(target=lambda: loop.call_soon_threadsafe(task.cancel)).start()
    await asyncio.Event().wait()


async def of_what_it_awaits() -> None:
    child = asyncio.create_task(asyncio.Event().wait())
    asyncio.get_running_loop().call_soon(child.cancel)
    await child


async def by_raising_it() -> None:
    raise asyncio.CancelledError


WAYS = [at_once, from_a_child_task, by_a_timer, from_a_thread, of_what_it_awaits, by_raising_it]
by_every_way = pytest.mark.parametrize("cancel", WAYS)


async def dead(app: Windlass, job: Any, *args: Any) -> Job:
    async with serving(app):
        return await in_state(await job.aenqueue(*args), State.DEAD)


def charge_of(job: Job) -> tuple[int, int, ErrorInfo]:
    assert job.error is not None
    return job.attempt, job.failures, job.error


def assert_failed_once(job: Job) -> None:
    attempt, failures, error = charge_of(job)
    assert (attempt, failures, error.type) == (1, 1, OWN)
    assert [each.outcome for each in job.history] == ["failed"]


@by_every_way
def test_a_handler_that_cancels_itself_has_failed(
    bed: Bed, cancel: Callable[[], Awaitable[None]]
) -> None:
    """Prevents a job that runs again at once, for ever and uncharged."""
    app = bed.app()

    @app.job(max_retries=0)
    async def work() -> None:
        await cancel()

    job = asyncio.run(dead(app, work))
    assert_failed_once(job)
    error = charge_of(job)[2]
    assert "cancelled its own task" in error.message
    assert error.traceback.endswith(error.message), "the traceback says as much as the message"
    assert "src/windlass" not in error.traceback


@on_embedded_stores
def test_a_handler_that_cancels_its_own_task_is_retried_like_any_failure(bed: Bed) -> None:
    app = bed.app()

    @app.job(retry=Retry(max_retries=2, initial="1ms"))
    async def work() -> None:
        await at_once()

    job = asyncio.run(dead(app, work))
    assert (job.attempt, job.failures) == (3, 3)
    assert job.reason == "gave up after 3 failures"


@on_embedded_stores
@by_every_way
@pytest.mark.parametrize("place", ["step", "middleware", "batch"])
def test_a_handler_that_cancels_its_own_task_has_failed_wherever_it_runs(
    bed: Bed, cancel: Callable[[], Awaitable[None]], place: str
) -> None:
    async def around(ctx: Context, call_next: CallNext) -> Any:
        if place == "middleware":
            await cancel()
        return await call_next()

    app = bed.app(middleware=[around])

    @app.job(max_retries=0)
    async def work(ctx: Context) -> None:
        await ctx.step("cancel", cancel)

    @app.job(max_retries=0, batch_size=2, batch_timeout="1ms")
    async def many(items: list[int]) -> None:
        await cancel()

    chosen = (many, 1) if place == "batch" else (work,)
    assert_failed_once(asyncio.run(dead(app, *chosen)))


@on_embedded_stores
def test_a_def_handler_that_raises_it_has_failed(bed: Bed) -> None:
    app = bed.app()

    @app.job(max_retries=0)
    def work() -> None:
        raise asyncio.CancelledError

    assert_failed_once(asyncio.run(dead(app, work)))


@on_embedded_stores
def test_a_job_cannot_cancel_the_run_of_another(bed: Bed) -> None:
    """Prevents that one pays for another: they share an event loop, and one task runs many."""
    app = bed.app()
    begun = asyncio.Event()
    tasks: list[asyncio.Task[Any]] = []

    @app.job
    async def leave_a_timer_behind() -> None:
        asyncio.get_running_loop().call_later(0.001, own_task().cancel)

    @app.job
    async def wait() -> str:
        tasks.append(own_task())
        begun.set()
        await asyncio.sleep(0.2)
        return "unharmed"

    @app.job
    async def cancel_them() -> None:
        await begun.wait()
        for task in tasks:
            task.cancel()

    async def main() -> None:
        async with serving(app, concurrency=3):
            producers: list[Any] = [leave_a_timer_behind, wait, cancel_them]
            handles = await app.aenqueue_many([each.draft() for each in producers])
            jobs = [await in_state(each, State.COMPLETED) for each in handles]
            assert [job.attempt for job in jobs] == [1, 1, 1]

    asyncio.run(main())


@on_embedded_stores
def test_an_embedded_worker_outlives_a_job_that_cancels_every_other_task(bed: Bed) -> None:
    """Prevents services that end without a word: the program's own tasks are its own affair."""
    app = bed.app()
    begun, tasks = asyncio.Event(), set[asyncio.Task[Any]]()

    @app.job
    async def neighbour() -> None:
        begun.set()
        await asyncio.sleep(0.1)

    @app.job
    async def cancel_all() -> None:
        await begun.wait()
        for task in asyncio.all_tasks() - tasks - {own_task()}:
            task.cancel()

    @app.job
    async def after() -> int:
        return 1

    async def main() -> None:
        async with serving(app) as worker:
            tasks.update({own_task(), worker._state.task})  # type: ignore[arg-type]
            handles = [await neighbour.aenqueue(), await cancel_all.aenqueue()]
            for handle in handles:
                assert (await in_state(handle, State.COMPLETED)).attempt == 1
            assert await (await after.aenqueue()).aresult("60s") == 1

    asyncio.run(main())


async def returns() -> None:
    """End as most programs do: `asyncio.run` cancels every task that is left."""


async def stops_the_loop() -> None:
    asyncio.get_running_loop().stop()
    await asyncio.Event().wait()


async def raises_in_a_task() -> None:
    async def interrupted() -> None:
        raise KeyboardInterrupt

    task = asyncio.create_task(interrupted())
    # Taken notice of here: nobody else can, since the loop ends before the program goes on.
    task.add_done_callback(asyncio.Task.exception)
    await asyncio.Event().wait()


async def is_interrupted() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (returns, None),
        (stops_the_loop, RuntimeError),
        (raises_in_a_task, KeyboardInterrupt),
        (is_interrupted, KeyboardInterrupt),
    ],
)
def test_a_program_that_ends_gives_back_and_charges_nothing(
    bed: Bed, end: Callable[[], Awaitable[None]], error: type[BaseException] | None
) -> None:
    """Prevents that a job pays for the end of the program around its worker."""
    # Python's own, from which asyncio knows that it may take the signal: an earlier test of this
    # process may have left another.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    app = bed.app(shutdown_timeout="0s")
    begun = asyncio.Event()
    kept: list[Any] = []

    @app.job(max_retries=0)
    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    async def program() -> None:
        kept.append(await wait.aenqueue())
        kept.append(asyncio.create_task(app.arun_worker()))
        await begun.wait()
        await end()

    with nullcontext() if error is None else pytest.raises(error):
        asyncio.run(program())
    job = asyncio.run(in_state(kept[0], State.PENDING))
    assert (job.failures, job.crashes) == (0, 0)
    assert [each.outcome for each in job.history] == ["released"]
