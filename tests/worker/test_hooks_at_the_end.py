"""Hooks on the end of a run hear what became of it: once, and only when that is known."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tests.support.app_on_store import Bed, in_state, log_lines, on_embedded_stores, serving
from windlass import (
    Callbacks,
    CallNext,
    Cancel,
    Context,
    Handle,
    Job,
    Kind,
    MeasureRuns,
    State,
    Windlass,
)

pytestmark = on_embedded_stores


class Heard:
    """What the hooks of an app were told of the ends of its runs."""

    def __init__(self, app: Windlass) -> None:
        self.ends: list[tuple[str, str]] = []
        self.durations: list[timedelta] = []
        app.on_job_complete(self.completed)
        app.on_job_error(self.failed)

    def completed(self, ctx: Context, result: Any) -> None:
        self.ends.append((ctx.kind, f"completed {result}"))

    async def failed(self, ctx: Context, error: BaseException, duration: timedelta) -> None:
        self.ends.append((ctx.kind, type(error).__name__))
        self.durations.append(duration)


def own_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def refuse(ctx: Context, call_next: CallNext) -> Any:
    raise PermissionError(ctx.kind)


def register(app: Windlass) -> None:  # noqa: C901 - one handler for each way to fail.
    @app.job(max_retries=0)
    async def raises() -> None:
        raise ValueError("no")

    @app.job(max_retries=0)
    def raises_in_thread() -> None:
        raise ValueError("no")

    @app.job(max_retries=0)
    async def exits() -> None:
        raise SystemExit(3)

    @app.job(max_retries=0)
    async def takes_a_number(n: int) -> None: ...

    @app.job(max_retries=0)
    async def returns_an_object() -> object:
        return object()

    @app.job(max_retries=0, timeout="20ms")
    async def hangs() -> None:
        await asyncio.Event().wait()

    @app.job(max_retries=0, timeout="20ms", grace="20ms")
    async def ignores_its_timeout() -> None:
        for _ in range(3):
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                continue

    @app.job(max_retries=0)
    async def cancels_itself() -> None:
        own_task().cancel()
        await asyncio.sleep(1)

    @app.job(max_retries=0, middleware=[refuse])
    async def is_refused() -> None: ...

    @app.job(max_retries=0, batch_size=2, batch_timeout="1ms")
    async def fails_in_a_batch(items: list[dict[str, str]]) -> None:
        raise ValueError("no")

    @app.job(max_retries=0)
    async def skips_a_step(ctx: Context) -> None:
        await ctx.step("one", lambda: None)
        await ctx.step("one", lambda: None)


CASES = {
    "raises": "ValueError",
    "raises_in_thread": "ValueError",
    "exits": "SystemExit",
    "takes_a_number": "PayloadInvalid",
    "returns_an_object": "ResultInvalid",
    "hangs": "TimeoutError",
    "ignores_its_timeout": "TimeoutError",
    "cancels_itself": "CancelledError",
    "is_refused": "PermissionError",
    "fails_in_a_batch": "ValueError",
    "skips_a_step": "StepError",
}


async def enqueue(app: Windlass, kind: str) -> Handle[Any]:
    """Enqueue a job as a program does that does not know its handler."""
    takes_one = kind in ("takes_a_number", "fails_in_a_batch")
    payload = {"n": "none"} if takes_one else {}
    return await app.producer(Kind(kind, dict[str, Any])).aenqueue(payload)


@pytest.mark.parametrize(("kind", "error"), CASES.items())
def test_the_hook_for_errors_hears_once_of_every_failed_run(
    bed: Bed, kind: str, error: str
) -> None:
    """Prevents failures of which no hook hears, and a completion of a job that is dead."""
    app = bed.app()
    heard = Heard(app)
    register(app)

    async def main() -> Job:
        async with serving(app):
            return await in_state(await enqueue(app, kind), State.DEAD)

    job = asyncio.run(main())
    assert job.failures == 1
    assert heard.ends == [(kind, error)]
    assert all(timedelta(0) < each < timedelta(minutes=1) for each in heard.durations)


def test_a_run_that_is_given_back_or_cancelled_has_neither_failed_nor_completed(bed: Bed) -> None:
    app = bed.app(shutdown_timeout="0s")
    heard = Heard(app)
    begun = asyncio.Event()

    @app.job
    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    @app.job
    async def never() -> Cancel:
        return Cancel()

    async def main() -> None:
        async with serving(app, shutdown_timeout="0s"):
            await in_state(await never.aenqueue(), State.CANCELLED)
            handle = await wait.aenqueue()
            await begun.wait()
            await handle.acancel()
            await in_state(handle, State.CANCELLED)
            begun.clear()
            handle = await wait.aenqueue()
            await begun.wait()
        await in_state(handle, State.PENDING)

    asyncio.run(main())
    assert heard.ends == []


def test_nothing_that_a_hook_raises_changes_the_end_of_a_job(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    """Prevents that a job which was done is dead, since a hook called `sys.exit`."""
    app = bed.app()
    errors = [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), ValueError("no")]

    @app.on_job_start
    @app.on_job_complete
    @app.on_job_error
    def fail(ctx: Context, *_: Any) -> None:
        raise errors[ctx.arguments["n"]]

    @app.job(max_retries=0)
    async def work(n: int, good: bool) -> int:
        if not good:
            raise LookupError
        return n

    async def main() -> None:
        async with serving(app):
            for n in range(len(errors)):
                assert await (await work.aenqueue(n, good=True)).aresult("60s") == n
                job = await in_state(await work.aenqueue(n, good=False), State.DEAD)
                assert job.error is not None
                assert job.error.type == "LookupError"

    asyncio.run(main())
    assert len(log_lines(caplog, "callback.failed")) == 4 * len(errors)


@pytest.mark.parametrize("deaf", [False, True])
def test_a_hook_that_hangs_is_ended_and_its_job_is_what_it_was(bed: Bed, deaf: bool) -> None:
    """Prevents a job that counts as completed for its hooks, and as timed out in the store."""
    app = bed.app()
    gate = asyncio.Event()

    @app.on_job_complete
    async def hang(ctx: Context, result: Any) -> None:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                if not deaf:
                    raise

    @app.job(timeout="50ms", grace="10ms", max_retries=0)
    async def work() -> int:
        return 1

    async def main() -> None:
        async with serving(app):
            job = await in_state(await work.aenqueue(), State.COMPLETED)
            assert (job.attempt, job.failures) == (1, 0)
            gate.set()

    asyncio.run(main())


def test_hooks_of_one_handler_hear_the_same_as_those_of_the_app(bed: Bed) -> None:
    app = bed.app()
    heard = Heard(app)
    own: list[tuple[str, bool]] = []

    def completed(ctx: Context, result: Any, duration: timedelta) -> None:
        own.append((f"completed {result}", duration > timedelta(0)))

    def failed(ctx: Context, error: BaseException) -> None:
        own.append((type(error).__name__, True))

    async def add(ctx: Context, call_next: CallNext) -> Any:
        return await call_next() + 40

    @app.job(max_retries=0, middleware=[Callbacks(completed=completed, failed=failed), add])
    async def work(n: int) -> Any:
        return object() if n == 0 else n

    async def main() -> None:
        async with serving(app):
            assert await (await work.aenqueue(2)).aresult("60s") == 42
            await in_state(await work.aenqueue(0), State.DEAD)

    asyncio.run(main())
    assert own == [("completed 42", True), ("TypeError", True)]
    assert heard.ends == [("work", "completed 42"), ("work", "TypeError")]


@pytest.mark.parametrize(
    ("kind", "end"),
    [
        ("returns_an_object", "raised"),
        ("takes_a_number", "raised"),
        ("cancels_itself", "raised"),
        ("hangs", "interrupted"),
    ],
)
def test_measured_runs_ended_as_their_jobs_did(bed: Bed, kind: str, end: str) -> None:
    ends: list[str] = []
    app = bed.app(middleware=[MeasureRuns(lambda ctx, how, seconds: ends.append(how))])
    register(app)

    async def main() -> None:
        async with serving(app):
            await in_state(await enqueue(app, kind), State.DEAD)

    asyncio.run(main())
    assert ends == [end]
