"""A run knows what it is, can say how far it is, and marks the log lines written inside it."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.support.app_on_store import Bed, in_state, on_embedded_stores, serving, until
from windlass import Backoff, Context, Retry, Snooze, State, SyncContext, Windlass, current_context
from windlass.core.changes import Changes
from windlass.core.jobs.job import Job, Progress
from windlass.core.jobs.moves import Move, Verb
from windlass.core.jobs.settle import Transition
from windlass.observability.logs import configure_logging

users_log = logging.getLogger("shop.orders")


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What `configure_logging` writes; the root logger is as it was afterwards."""
    root, stream = logging.getLogger(), io.StringIO()
    level = root.level
    handler = configure_logging("info", "json", stream)
    yield stream
    root.removeHandler(handler)
    root.setLevel(level)


def test_a_run_knows_what_it_is(bed: Bed) -> None:
    app = bed.app()
    seen: list[Context] = []

    @app.job(name="shop.pay", queue="money")
    async def pay(ctx: Context, order: int) -> str | Snooze:
        seen.append(ctx)
        return ctx.idempotency_key if ctx.attempt == 2 else Snooze(0)

    async def main() -> None:
        async with serving(app) as worker:
            handle = await pay.aenqueue(7)
            assert await handle.aresult("60s") == f"windlass-{handle.id}"
            first, second = seen
            assert (first.attempt, second.attempt) == (1, 2)
            assert first.idempotency_key == second.idempotency_key
            assert (first.kind, first.queue, first.job_id) == ("shop.pay", "money", handle.id)
            assert first.arguments == {"order": 7}
            assert first.worker_id == worker.id
            assert not second.cancelled
            second.raise_if_cancelled()

    asyncio.run(main())


def test_the_context_is_at_hand_everywhere_in_a_run_and_nowhere_else(bed: Bed) -> None:
    app = bed.app()

    def deep() -> str:
        return current_context().kind

    @app.job
    async def on_the_loop() -> list[str]:
        inner = asyncio.create_task(asyncio.to_thread(deep))
        return [deep(), await inner]

    @app.job
    def in_a_thread() -> str:
        return deep()

    async def main() -> None:
        async with serving(app):
            found = await (await on_the_loop.aenqueue()).aresult("60s")
            assert found == ["on_the_loop", "on_the_loop"]
            assert await (await in_a_thread.aenqueue()).aresult("60s") == "in_a_thread"
        with pytest.raises(LookupError, match="no job is running here"):
            current_context()

    asyncio.run(main())


def test_progress_is_seen_from_outside_while_the_job_runs(bed: Bed) -> None:
    app = bed.app()
    go = threading.Event()

    @app.job
    def slow(ctx: SyncContext) -> None:
        ctx.progress(0.1)
        ctx.progress(0.25, "a quarter")
        go.wait(60)

    async def main() -> None:
        async with serving(app):
            handle = await slow.aenqueue()

            async def said() -> bool:
                return (await handle.ainfo()).progress is not None

            await until(said)
            job = await handle.ainfo()
            assert job.progress == Progress(fraction=0.25, message="a quarter")
            go.set()
            await handle.aresult("60s")

    asyncio.run(main())


def test_progress_goes_from_zero_to_one(bed: Bed) -> None:
    app = bed.app()

    @app.job(max_retries=0)
    async def wrong(ctx: Context, fraction: float) -> None:
        ctx.progress(fraction)

    async def main() -> None:
        async with serving(app):
            for fraction in (-0.1, 1.1):
                job = await in_state(await wrong.aenqueue(fraction), State.DEAD)
                assert job.error is not None
                assert "progress must be between 0 and 1" in job.error.message

    asyncio.run(main())


def test_progress_under_a_lost_fence_ends_the_run_and_changes_nothing(bed: Bed) -> None:
    app = bed.app()
    began, ended = asyncio.Event(), asyncio.Event()

    @app.job
    async def slow(ctx: Context) -> None:
        began.set()
        try:
            while True:
                ctx.progress(0.5, f"attempt {ctx.attempt}")
                await asyncio.sleep(0.01)
        finally:
            ended.set()

    async def main() -> None:
        async with serving(app, lease="1h"):
            handle = await slow.aenqueue()
            await began.wait()
            await steal(app, await handle.ainfo())
            await asyncio.wait_for(ended.wait(), 60)
            job = await handle.ainfo()
            assert (job.state, job.token, job.progress) == (State.RUNNING, 42, None)

    asyncio.run(main())


async def steal(app: Windlass, job: Job) -> None:
    """Put a running job under another fence, as a rescue by another worker does."""
    assert job.token is not None
    given_back = Transition(id=job.id, token=job.token, state=State.PENDING)
    taken = Move(verb=Verb.TAKE, id=job.id, worker="another", token=42)
    changes = Changes(answer=None, settle=[given_back], moves=[taken])
    await app.store.apply([], lambda _records, _now: changes)


def test_late_news_of_an_earlier_run_does_not_end_the_next_one(bed: Bed) -> None:
    """Prevents: progress of attempt 1, written after attempt 2 began, is taken for a lost lease."""
    app = bed.app()

    @app.job
    async def twice(ctx: Context) -> int | Snooze:
        if ctx.attempt == 1:
            ctx.progress(0.5)
            return Snooze(0)
        # Longer than the half second within which the progress of attempt 1 is written.
        await asyncio.sleep(0.8)
        return ctx.attempt

    async def main() -> None:
        async with serving(app):
            assert await (await twice.aenqueue()).aresult("60s") == 2

    asyncio.run(main())


def test_the_contexts_logger_marks_its_lines_with_the_job(bed: Bed, lines: io.StringIO) -> None:
    app = bed.app()

    @app.job(queue="money")
    async def pay(ctx: Context) -> None:
        ctx.log.info("paid", amount=3)

    async def main() -> None:
        async with serving(app) as worker:
            handle = await pay.aenqueue()
            await handle.aresult("60s")
            (line,) = [each for each in parsed(lines) if each["event"] == "paid"]
            assert line["job_id"] == str(handle.id)
            assert (line["kind"], line["queue"], line["attempt"]) == ("pay", "money", 1)
            assert (line["worker_id"], line["amount"]) == (worker.id, 3)

    asyncio.run(main())


def test_the_users_own_log_lines_inside_a_job_carry_its_fields(
    bed: Bed, lines: io.StringIO
) -> None:
    app = bed.app()

    @app.job
    async def on_the_loop() -> None:
        users_log.info("one %s", "x")

    @app.job
    def in_a_thread() -> None:
        users_log.info("two")

    async def main() -> None:
        async with serving(app) as worker:
            ids = {}
            for handler in (on_the_loop, in_a_thread):
                handle = await handler.aenqueue()
                await handle.aresult("60s")
                ids[handler.kind] = str(handle.id)
            users_log.info("outside")
            said = {line["event"]: line for line in parsed(lines)}
            assert said["one x"]["job_id"] == ids["on_the_loop"]
            assert said["two"]["job_id"] == ids["in_a_thread"]
            assert said["two"]["worker_id"] == worker.id
            assert "job_id" not in said["outside"]

    asyncio.run(main())


def parsed(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_job_enqueued_inside_a_job_does_not_take_its_fields(bed: Bed, lines: io.StringIO) -> None:
    app = bed.app()

    @app.job
    async def inner() -> None:
        users_log.info("inner")

    @app.job
    async def outer() -> str:
        return str((await inner.aenqueue()).id)

    async def main() -> None:
        async with serving(app):
            inner_id = await (await outer.aenqueue()).aresult("60s")
            await app.handle(inner_id).aresult("60s")
            (line,) = [each for each in parsed(lines) if each["event"] == "inner"]
            assert (line["job_id"], line["kind"]) == (inner_id, "inner")

    asyncio.run(main())


@on_embedded_stores
def test_a_store_without_transactions_says_so_where_one_is_asked_for(bed: Bed) -> None:
    app = bed.app()

    @app.job(max_retries=0)
    async def charge(ctx: Context) -> None:
        async with ctx.transaction():
            raise AssertionError("this must not begin")

    async def main() -> None:
        async with serving(app):
            job = await in_state(await charge.aenqueue(), State.DEAD)
            assert job.error is not None
            assert job.error.type == "windlass.ConfigError"
            assert "ctx.transaction() needs the jobs in the same database" in job.error.message

    asyncio.run(main())


def test_a_handler_knows_how_often_its_job_has_failed(bed: Bed) -> None:
    """A snooze is an attempt and no failure; a redriven job begins anew."""
    app = bed.app()
    seen: list[tuple[int, int]] = []

    @app.job(retry=Retry(max_retries=2, backoff=Backoff(base=timedelta(0))))
    async def fail(ctx: Context) -> Snooze | None:
        seen.append((ctx.attempt, ctx.failures))
        if ctx.attempt == 2:
            return Snooze(0)
        raise ValueError("no")

    async def main() -> None:
        async with serving(app):
            handle = await fail.aenqueue()
            await in_state(handle, State.DEAD)
            assert seen == [(1, 0), (2, 1), (3, 1), (4, 2)]
            await app.control.aredrive([handle.id])
            await until(lambda: len(seen) > 4)
            assert seen[4] == (5, 0)
            await in_state(handle, State.DEAD)

    asyncio.run(main())
