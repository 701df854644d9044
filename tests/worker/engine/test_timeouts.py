"""Every run ends by its timeout, whether its handler heeds that or not."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import pytest

from tests.support.app_on_store import (
    Bed,
    Clock,
    in_state,
    log_lines,
    on_embedded_stores,
    our_threads,
    serving,
    until,
)
from windlass import Context, State, SyncContext
from windlass.worker.engine.executor import CANCEL_GRACE


def test_an_async_handler_is_cancelled_when_its_time_is_up(bed: Bed) -> None:
    app = bed.app()
    told_so = asyncio.Event()

    @app.job(timeout="50ms", max_retries=0)
    async def hang(ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            assert ctx.cancelled
            told_so.set()
            raise

    async def main() -> None:
        async with serving(app) as worker:
            job = await in_state(await hang.aenqueue(), State.DEAD)
            assert told_so.is_set()
            assert (job.failures, job.history[0].outcome) == (1, "timed out")
            assert job.history[0].duration >= timedelta(milliseconds=50)
            assert worker.left_behind == 0

    asyncio.run(main())


def test_a_timeout_is_a_failure_that_is_retried(bed: Bed) -> None:
    clock = Clock()
    app = bed.app(store=bed.store(clock=clock))

    @app.job(timeout="30ms", max_retries=1)
    async def hang() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        async with serving(app, lease="1h"):
            handle = await hang.aenqueue()
            job = await in_state(handle, State.SCHEDULED)
            assert (job.failures, job.reason) == (1, "timed out")
            assert 0.5 <= (job.due_at - clock.now).total_seconds() <= 1
            clock.advance(seconds=1)
            assert (await in_state(handle, State.DEAD)).failures == 2

    asyncio.run(main())


def test_a_sync_handler_that_overruns_is_left_to_itself_and_its_place_is_filled(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    app = bed.app()
    go = threading.Event()
    before = threading.enumerate()

    @app.job(timeout="50ms", max_retries=0)
    def hang() -> None:
        go.wait(60)

    @app.job
    def quick() -> int:
        return 1

    async def main() -> None:
        async with serving(app, threads=1) as worker:
            job = await in_state(await hang.aenqueue(), State.DEAD)
            assert job.history[0].outcome == "timed out"
            assert await (await quick.aenqueue()).aresult("60s") == 1
            assert worker.left_behind == 1
            assert "go.wait" in log_lines(caplog, "thread.lost")[0]["stack"]
            go.set()
        await app.aclose()
        await until(lambda: our_threads(besides=before) == [])

    asyncio.run(main())


@on_embedded_stores
def test_a_sync_handler_has_its_grace_to_come_back(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    """Prevents a thread that is given up while its handler still cleans up, as it may."""
    app = bed.app()
    tidied, never = threading.Event(), threading.Event()

    @app.job(timeout="50ms", grace="20s", max_retries=0)
    def tidy(ctx: SyncContext) -> None:
        while not ctx.cancelled:
            never.wait(0.01)
        never.wait(CANCEL_GRACE.total_seconds() + 0.5)
        tidied.set()

    async def main() -> None:
        async with serving(app, threads=1) as worker:
            job = await in_state(await tidy.aenqueue(), State.DEAD)
            assert tidied.is_set()
            assert job.history[0].outcome == "timed out"
            assert worker.left_behind == 0

    asyncio.run(main())
    assert log_lines(caplog, "thread.lost") == []


@on_embedded_stores
def test_a_thread_is_given_up_after_a_grace_that_is_short(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    app = bed.app()
    go = threading.Event()

    @app.job(timeout="50ms", grace="50ms", max_retries=0)
    def hang() -> None:
        go.wait(60)

    async def main() -> None:
        async with serving(app, threads=1):
            await in_state(await hang.aenqueue(), State.DEAD)
            await until(
                lambda: log_lines(caplog, "thread.lost"), within=CANCEL_GRACE.total_seconds() / 2
            )
            go.set()

    asyncio.run(main())


def test_a_handler_that_cleans_up_for_too_long_is_abandoned(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    app = bed.app()
    go = asyncio.Event()

    @app.job(timeout="30ms", max_retries=0)
    async def stubborn() -> str:
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue
        return "too late"

    async def main() -> None:
        async with serving(app) as worker:
            job = await in_state(await stubborn.aenqueue(), State.DEAD)
            assert job.history[0].outcome == "timed out"
            assert worker.left_behind == 1
            go.set()
            await asyncio.sleep(0)
            assert (await in_state(app.handle(job.id), State.DEAD)).result is None

    asyncio.run(main())
    assert len(log_lines(caplog, "job.abandoned")) == 1


def test_a_handler_that_returns_after_it_was_cancelled_has_succeeded(bed: Bed) -> None:
    app = bed.app()

    @app.job(timeout="30ms", max_retries=0)
    async def salvage() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "what there is"
        return "all"

    async def main() -> None:
        async with serving(app):
            assert await (await salvage.aenqueue()).aresult("60s") == "what there is"

    asyncio.run(main())


def test_no_timeout_is_no_timeout(bed: Bed) -> None:
    app = bed.app(timeout="30ms")
    go = asyncio.Event()

    @app.job(timeout=None)
    async def patient() -> str:
        await go.wait()
        return "done"

    @app.job(max_retries=0)
    async def hurried() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        async with serving(app):
            handle = await patient.aenqueue()
            await in_state(await hurried.aenqueue(), State.DEAD)
            assert await handle.astate() is State.RUNNING
            go.set()
            assert await handle.aresult("60s") == "done"

    asyncio.run(main())
