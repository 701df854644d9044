"""Hooks hear of a worker's life and of every run, and cannot harm either by failing."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from tests.support.app_on_store import (
    Bed,
    in_state,
    log_lines,
    on_embedded_stores,
    our_threads,
    serving,
)
from windlass import Callbacks, Cancel, Context, Snooze, State

pytestmark = on_embedded_stores


def test_hooks_are_called_around_a_workers_life_sync_and_async(bed: Bed) -> None:
    app = bed.app()
    heard: list[str] = []

    @app.on_start
    def first() -> None:
        heard.append("start 1")

    @app.on_start
    async def second() -> None:
        await asyncio.sleep(0)
        heard.append("start 2")

    @app.on_shutdown
    async def third() -> None:
        await asyncio.sleep(0)
        heard.append("shutdown 1")

    @app.on_shutdown
    def fourth() -> None:
        heard.append("shutdown 2")

    @app.job
    async def work() -> None:
        heard.append("work")

    async def main() -> None:
        async with serving(app):
            await (await work.aenqueue()).aresult("60s")

    asyncio.run(main())
    assert heard == ["start 1", "start 2", "work", "shutdown 1", "shutdown 2"]


def test_a_failing_start_hook_stops_the_worker_and_leaks_nothing(bed: Bed) -> None:
    app = bed.app()
    before = threading.enumerate()

    @app.on_start
    async def refuse() -> None:
        raise RuntimeError("the cache is down")

    @app.job
    async def work() -> None: ...

    async def main() -> None:
        handle = await work.aenqueue()
        with pytest.raises(RuntimeError, match="the cache is down"):
            await app.arun_worker()
        assert await handle.astate() is State.PENDING
        assert not [worker for worker in await app.store.workers() if worker.alive]
        assert len(asyncio.all_tasks()) == 1
        await app.aclose()

    asyncio.run(main())
    assert our_threads(besides=before) == []


def test_a_failing_shutdown_hook_does_not_keep_others_from_being_called(bed: Bed) -> None:
    app = bed.app()
    heard: list[str] = []

    @app.on_shutdown
    def broken() -> None:
        raise RuntimeError("no")

    @app.on_shutdown
    def closing() -> None:
        heard.append("closed")

    async def main() -> None:
        try:
            async with serving(app):
                pass
        except RuntimeError:
            pass
        assert not [worker for worker in await app.store.workers() if worker.alive]

    asyncio.run(main())
    assert heard == ["closed"]


@pytest.mark.parametrize("pool", ["loop", "threads"])
def test_callbacks_hear_of_every_run(  # noqa: C901 - one function for every hook.
    bed: Bed, pool: str
) -> None:
    app = bed.app()
    heard: list[tuple[Any, ...]] = []

    @app.on_job_start
    def started(ctx: Context) -> None:
        heard.append(("started", ctx.kind, ctx.attempt))

    @app.on_job_start
    async def started_too(ctx: Context) -> None:
        await asyncio.sleep(0)
        heard.append(("started too", ctx.kind, ctx.attempt))

    @app.on_job_complete
    def completed(ctx: Context, result: Any) -> None:
        heard.append(("completed", ctx.kind, result))

    @app.on_job_complete
    async def completed_too(ctx: Context, result: Any) -> None:
        heard.append(("completed too", ctx.kind, result))

    @app.on_job_error
    def failed(ctx: Context, error: BaseException) -> None:
        heard.append(("failed", ctx.kind, str(error)))

    @app.on_job_error
    async def failed_too(ctx: Context, error: BaseException) -> None:
        heard.append(("failed too", ctx.kind, str(error)))

    def good_(n: int) -> int:
        return n + 1

    def bad_() -> None:
        raise ValueError("no")

    async def agood(n: int) -> int:
        return good_(n)

    async def abad() -> None:
        bad_()

    register: Any = app.job
    good = register(name="good")(agood if pool == "loop" else good_)
    bad = register(name="bad", max_retries=0)(abad if pool == "loop" else bad_)

    async def main() -> None:
        async with serving(app):
            assert await (await good.aenqueue(1)).aresult("60s") == 2
            await in_state(await bad.aenqueue(), State.DEAD)

    asyncio.run(main())
    assert heard == [
        ("started", "good", 1),
        ("started too", "good", 1),
        ("completed", "good", 2),
        ("completed too", "good", 2),
        ("started", "bad", 1),
        ("started too", "bad", 1),
        ("failed", "bad", "no"),
        ("failed too", "bad", "no"),
    ]


def test_a_timeout_is_an_error_that_callbacks_hear_of(bed: Bed) -> None:
    """Prevents: a timeout is charged as a failure and the failure's hook is never called."""
    app = bed.app()
    heard: list[BaseException] = []

    @app.on_job_error
    def failed(ctx: Context, error: BaseException) -> None:
        heard.append(error)

    @app.job(timeout="30ms", max_retries=0)
    async def hang() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        async with serving(app):
            await in_state(await hang.aenqueue(), State.DEAD)

    asyncio.run(main())
    assert [type(error) for error in heard] == [TimeoutError]


def test_a_snoozed_or_cancelled_job_has_not_completed(bed: Bed) -> None:
    app = bed.app()
    heard: list[str] = []

    @app.on_job_complete
    def completed(ctx: Context, result: Any) -> None:
        heard.append(ctx.kind)

    @app.job
    async def later() -> Snooze:
        return Snooze("1h")

    @app.job
    async def never() -> Cancel:
        return Cancel()

    async def main() -> None:
        async with serving(app):
            await in_state(await later.aenqueue(), State.SCHEDULED)
            await in_state(await never.aenqueue(), State.CANCELLED)

    asyncio.run(main())
    assert heard == []


def test_a_failing_callback_changes_nothing(bed: Bed, caplog: pytest.LogCaptureFixture) -> None:
    app = bed.app()

    @app.on_job_start
    def started(ctx: Context) -> None:
        raise RuntimeError("started")

    @app.on_job_complete
    async def completed(ctx: Context, result: Any) -> None:
        raise RuntimeError("completed")

    @app.on_job_error
    def failed(ctx: Context, error: BaseException) -> None:
        raise RuntimeError("failed")

    @app.job
    async def good() -> int:
        return 1

    @app.job(max_retries=0)
    async def bad() -> None:
        raise ValueError("its own")

    async def main() -> None:
        async with serving(app):
            assert await (await good.aenqueue()).aresult("60s") == 1
            job = await in_state(await bad.aenqueue(), State.DEAD)
            assert job.error is not None
            assert str(job.error) == "ValueError: its own"

    asyncio.run(main())
    names = [line["callback"].rpartition(".")[2] for line in log_lines(caplog, "callback.failed")]
    assert names == ["started", "completed", "started", "failed"]


def test_callbacks_can_be_put_on_one_handler(bed: Bed) -> None:
    app = bed.app()
    heard: list[str] = []
    callbacks = Callbacks(
        started=lambda ctx: heard.append(f"{ctx.kind} started"),
        completed=lambda ctx, result: heard.append(f"{ctx.kind} gave {result}"),
        failed=lambda ctx, error: heard.append(f"{ctx.kind} raised {error}"),
    )

    @app.job(middleware=[callbacks], max_retries=0)
    async def watched(fail: bool) -> int:
        if fail:
            raise ValueError("no")
        return 1

    @app.job
    async def unwatched() -> None: ...

    async def main() -> None:
        async with serving(app):
            await (await watched.aenqueue(False)).aresult("60s")
            await (await unwatched.aenqueue()).aresult("60s")
            await in_state(await watched.aenqueue(True), State.DEAD)

    asyncio.run(main())
    assert heard == ["watched started", "watched gave 1", "watched started", "watched raised no"]
