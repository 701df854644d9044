"""Middleware wraps a handler, the app's outermost; it sees everything and may change it."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.app_on_store import Bed, in_state, log_lines, on_embedded_stores, serving, until
from windlass import CallNext, Context, Middleware, Retry, Snooze, State
from windlass.core.jobs.ids import flow_id, member_id
from windlass.core.values.durations import duration
from windlass.handlers.middleware import log_runs

pytestmark = on_embedded_stores


def tracing(name: str, trace: list[str]) -> Middleware:
    async def layer(ctx: Context, call_next: CallNext) -> Any:
        trace.append(f"> {name}")
        try:
            return await call_next()
        finally:
            trace.append(f"< {name}")

    return layer


@pytest.mark.parametrize("pool", ["loop", "threads"])
def test_middleware_of_the_app_goes_around_that_of_the_handler(bed: Bed, pool: str) -> None:
    trace: list[str] = []
    app = bed.app(middleware=[tracing("app 1", trace), tracing("app 2", trace)])

    def work() -> None:
        trace.append("work")

    async def awork() -> None:
        work()

    register: Any = app.job
    own = [tracing("own 1", trace), tracing("own 2", trace)]
    handler = register(name="work", middleware=own)(awork if pool == "loop" else work)

    async def main() -> None:
        async with serving(app):
            await (await handler.aenqueue()).aresult("60s")

    asyncio.run(main())
    layers = ["app 1", "app 2", "own 1", "own 2"]
    down, up = [f"> {name}" for name in layers], [f"< {name}" for name in reversed(layers)]
    assert trace == [*down, "work", *up]


def test_middleware_sees_exceptions_and_may_replace_them(bed: Bed) -> None:
    seen: list[str] = []

    async def translate(ctx: Context, call_next: CallNext) -> Any:
        try:
            return await call_next()
        except ZeroDivisionError as error:
            seen.append(str(error))
            raise ValueError("translated") from error
        except KeyError:
            return "a default"

    app = bed.app(middleware=[translate])

    @app.job(max_retries=0)
    async def divide() -> float:
        return 1 / 0

    @app.job
    def look_up() -> str:
        return dict[str, str]()["x"]

    async def main() -> None:
        async with serving(app):
            job = await in_state(await divide.aenqueue(), State.DEAD)
            assert job.error is not None
            assert str(job.error) == "ValueError: translated"
            assert "ZeroDivisionError" in job.error.traceback
            assert await (await look_up.aenqueue()).aresult("60s") == "a default"

    asyncio.run(main())
    assert seen == ["division by zero"]


def test_middleware_may_change_a_result_and_may_not_call_the_handler_at_all(bed: Bed) -> None:
    ran: list[int] = []

    async def gate(ctx: Context, call_next: CallNext) -> Any:
        if ctx.arguments["n"] < 0:
            return -1
        if ctx.arguments["n"] == 0:
            return Snooze("1h")
        return (await call_next()) * 10

    app = bed.app(middleware=[gate])

    @app.job
    async def work(n: int) -> int:
        ran.append(n)
        return n

    async def main() -> None:
        async with serving(app):
            assert await (await work.aenqueue(4)).aresult("60s") == 40
            assert await (await work.aenqueue(-4)).aresult("60s") == -1
            await in_state(await work.aenqueue(0), State.SCHEDULED)

    asyncio.run(main())
    assert ran == [4]


def test_middleware_that_raises_fails_the_job(bed: Bed) -> None:
    async def broken(ctx: Context, call_next: CallNext) -> Any:
        raise RuntimeError("in the middle")

    app = bed.app()

    @app.job(middleware=[broken], max_retries=0)
    async def work() -> None: ...

    async def main() -> None:
        async with serving(app):
            job = await in_state(await work.aenqueue(), State.DEAD)
            assert job.error is not None
            assert job.error.message == "in the middle"

    asyncio.run(main())


def test_every_run_is_logged_with_its_job_its_worker_and_its_duration(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    app = bed.app()

    @app.job(queue="q")
    async def good() -> None: ...

    @app.job(max_retries=0)
    def bad() -> None:
        raise ValueError("no")

    @app.job(timeout="30ms", max_retries=0)
    async def slow() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        async with serving(app) as worker:
            handles = [await good.aenqueue(), await bad.aenqueue(), await slow.aenqueue()]
            for handle in handles:
                await in_state(handle, State.COMPLETED, State.DEAD)
            ids = [handle.id for handle in handles]
            for event, place in (("finished", 0), ("raised", 1), ("interrupted", 2)):
                (line,) = log_lines(caplog, f"job.{event}")
                assert line["job_id"] == ids[place]
                assert line["worker_id"] == worker.id
                assert line["attempt"] == 1
                assert line["duration"] >= 0
            began = log_lines(caplog, "job.started")
            assert {line["job_id"] for line in began} == set(ids)
            assert {line["worker_id"] for line in began} == {worker.id}

    with caplog.at_level("DEBUG", logger="windlass"):
        asyncio.run(main())


def test_the_log_lines_of_runs_are_the_same_if_another_middleware_calls_for_them(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    app = bed.app(middleware=[lambda ctx, call_next: log_runs(ctx, call_next)])

    @app.job
    async def work() -> None: ...

    async def main() -> None:
        async with serving(app):
            await (await work.aenqueue()).aresult("60s")

    with caplog.at_level("INFO", logger="windlass"):
        asyncio.run(main())
    for event in ("job.started", "job.finished"):
        usual, other = log_lines(caplog, event)
        assert usual["job_id"] == other["job_id"]


def test_every_retry_is_logged_with_its_attempt_and_death_with_its_reason(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    app = bed.app()

    @app.job(retry=Retry(max_retries=2, initial="1ms"))
    async def bad() -> None:
        raise ValueError("no")

    async def main() -> None:
        async with serving(app) as worker:
            handle = await bad.aenqueue()
            await in_state(handle, State.DEAD)
            await until(lambda: log_lines(caplog, "job.dead"))  # It is told after it is so.
            retried = log_lines(caplog, "job.retried")
            assert [(line["attempt"], line["failures"]) for line in retried] == [(1, 1), (2, 2)]
            (dead,) = log_lines(caplog, "job.dead")
            assert dead["reason"] == "gave up after 3 failures"
            assert {line["job_id"] for line in [*retried, dead]} == {handle.id}
            assert {line["worker_id"] for line in [*retried, dead]} == {worker.id}

    with caplog.at_level("INFO", logger="windlass"):
        asyncio.run(main())


def test_a_retry_says_when_the_next_attempt_is_also_where_jobs_keep_their_order(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    """Prevents a retry of an ordered kind from being told as a release, without a time."""
    app = bed.app()

    @app.job(retry=Retry(max_retries=2, initial="1h"))
    async def loose() -> None:
        raise ValueError("no")

    @app.job(retry=Retry(max_retries=2, initial="1h"), key="account", ordered=True)
    async def strict(account: str) -> None:
        raise ValueError("no")

    async def main() -> None:
        async with serving(app):
            await loose.aenqueue()
            await strict.aenqueue("a")
            await until(lambda: len(log_lines(caplog, "job.retried")) == 2)

    began = datetime.now(UTC)
    with caplog.at_level("INFO", logger="windlass"):
        asyncio.run(main())
    for line in log_lines(caplog, "job.retried"):
        wait = duration(line["next"])
        assert wait > timedelta(minutes=1)
        assert timedelta(0) <= line["next_at"] - began - wait <= timedelta(minutes=1)
    assert log_lines(caplog, "job.released") == []


def test_lines_of_a_job_that_belongs_to_a_flow_name_it(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    app = bed.app()
    flow = flow_id(1_000, 7)

    @app.job(max_retries=0)
    async def fail() -> None:
        logging.getLogger("shop").warning("about to fail")
        raise ValueError("no")

    async def main() -> None:
        await app.store.enqueue([replace(fail.draft().job, id=member_id(flow, 3))])
        await fail.aenqueue()
        async with serving(app):
            await until(lambda: len(log_lines(caplog, "job.dead")) == 2)

    with caplog.at_level("DEBUG"):
        asyncio.run(main())
    for event in ("job.started", "job.raised", "job.dead"):
        assert {line.get("flow") for line in log_lines(caplog, event)} == {None, flow}
