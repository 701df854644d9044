"""Blocks of `ctx.transaction()` that come too late, twice, or in the wrong form, change nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.handlers.job_transactions.orders import orders
from tests.support.app_on_store import STORES, Bed, in_state, log_lines, serving, until
from windlass import CalledFromEventLoop, Context, InvalidTransition, Snooze, State, SyncContext
from windlass.core.errors import LeaseLost

pytestmark = pytest.mark.stores(*STORES)
INSERT = "INSERT INTO orders VALUES (%s)"


@pytest.mark.parametrize("pool", ["loop", "threads"])
def test_raising_after_the_block_changes_nothing(bed: Bed, pool: str) -> None:
    app = bed.app()

    async def in_a_loop(ctx: Context) -> None:
        async with ctx.transaction():
            pass
        raise LookupError("too late")

    def in_a_thread(ctx: SyncContext) -> None:
        with ctx.transaction():
            pass
        raise LookupError("too late")

    handler: Callable[..., Any] = in_a_loop if pool == "loop" else in_a_thread
    job = app.job(name="charge")(handler)

    async def main() -> None:
        async with serving(app) as worker:
            handle = await job.aenqueue()
            await until(lambda: worker.processed == 1)
            done = await handle.ainfo()
            assert (done.state, done.attempt, done.failures) == (State.COMPLETED, 1, 0)
            # And the worker is as before.
            await in_state(await job.aenqueue(), State.COMPLETED)

    asyncio.run(main())


@pytest.mark.parametrize("value", [7, Snooze("1m"), object()], ids=["result", "snooze", "junk"])
def test_a_result_returned_after_the_transaction_is_ignored_with_a_warning(
    bed: Bed, value: object, caplog: pytest.LogCaptureFixture
) -> None:
    app = bed.app()

    @app.job
    async def charge(ctx: Context) -> Any:
        async with ctx.transaction():
            pass
        return value

    @app.job
    async def silent(ctx: Context) -> None:
        async with ctx.transaction():
            pass

    async def main() -> None:
        async with serving(app) as worker:
            handle = await charge.aenqueue()
            await silent.aenqueue()
            await until(lambda: worker.processed == 2)
            job = await handle.ainfo()
            assert (job.state, job.result, job.attempt) == (State.COMPLETED, None, 1)
            (line,) = log_lines(caplog, "job.result_ignored")
            assert (line["job_id"], line["kind"]) == (handle.id, "charge")

    asyncio.run(main())
    assert not log_lines(caplog, "job.fenced")


@pytest.mark.parametrize("pool", ["loop", "threads"])
def test_a_second_block_is_refused_before_it_begins(
    bed: Bed, pool: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = bed.app()
    raised: list[str] = []

    async def in_a_loop(ctx: Context) -> None:
        for n in (1, 2):
            try:
                async with ctx.transaction() as conn:
                    await conn.execute(INSERT, [n])
            except InvalidTransition as error:
                raised.append(str(error))

    def in_a_thread(ctx: SyncContext) -> None:
        for n in (1, 2):
            try:
                with ctx.transaction() as conn:
                    conn.execute(INSERT, [n])
            except InvalidTransition as error:
                raised.append(str(error))

    handler: Callable[..., Any] = in_a_loop if pool == "loop" else in_a_thread
    job = app.job(name="charge")(handler)

    async def main() -> None:
        async with serving(app) as worker:
            handle = await job.aenqueue()
            await until(lambda: worker.processed == 1)
            assert (await handle.ainfo()).state is State.COMPLETED

    asyncio.run(main())
    assert orders(bed) == [1]
    (message,) = raised
    assert "cannot begin a transaction: job" in message
    assert "in one ctx.transaction()" in message
    assert not log_lines(caplog, "job.fenced")


def test_a_block_within_a_block_is_refused_and_both_are_rolled_back(bed: Bed) -> None:
    """Prevents: an inner block that completes the job, so that the outer one is fenced out."""
    app = bed.app()

    @app.job(max_retries=0)
    async def charge(ctx: Context) -> None:
        async with ctx.transaction() as outer:
            await outer.execute(INSERT, [1])
            async with ctx.transaction() as inner:
                await inner.execute(INSERT, [2])

    async def main() -> None:
        async with serving(app):
            job = await in_state(await charge.aenqueue(), State.DEAD)
            assert job.error is not None
            assert "is being completed" in job.error.message

    asyncio.run(main())
    assert orders(bed) == []


def test_a_blocking_block_in_a_coroutine_names_what_to_write(bed: Bed) -> None:
    app = bed.app()

    @app.job(max_retries=0)
    async def charge(ctx: Context) -> None:
        with pytest.raises(CalledFromEventLoop, match=r"write async with ctx\.transaction\(\)"):
            ctx.transaction().__enter__()  # type: ignore[attr-defined]

    async def main() -> None:
        async with serving(app):
            await in_state(await charge.aenqueue(), State.COMPLETED)

    asyncio.run(main())


def test_a_timeout_inside_the_block_rolls_back(bed: Bed) -> None:
    app = bed.app()

    @app.job(max_retries=0, timeout="300ms")
    async def waits(ctx: Context, n: int) -> None:
        async with ctx.transaction() as conn:
            await conn.execute(INSERT, [n])
            await asyncio.sleep(60)

    @app.job(max_retries=0, timeout="300ms")
    async def asks(ctx: Context, n: int) -> None:
        async with ctx.transaction() as conn:
            await conn.execute(INSERT, [n])
            await conn.execute("SELECT pg_sleep(60)")

    async def main() -> None:
        async with serving(app):
            for job in (waits, asks):
                dead = await in_state(await job.aenqueue(1), State.DEAD)
                assert dead.error is not None
                assert dead.error.type == "TimeoutError"
            await until(lambda: not busy(bed))

    asyncio.run(main())
    assert orders(bed) == []


def busy(bed: Bed) -> bool:
    """Say whether a transaction of the store's is open, or runs a statement."""
    with psycopg.connect(bed.url, application_name="tests") as db:
        rows = db.execute(
            "SELECT FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name = 'windlass' AND (xact_start IS NOT NULL OR state <> 'idle')"
        )
        return rows.fetchone() is not None


def test_a_thread_that_overran_its_timeout_cannot_commit_afterwards(bed: Bed) -> None:
    app = bed.app()
    go = threading.Event()
    raised: list[type[BaseException]] = []

    @app.job(max_retries=0, timeout="100ms")
    def charge(ctx: SyncContext) -> None:
        try:
            with ctx.transaction() as conn:
                conn.execute(INSERT, [1])
                go.wait(30)
        except BaseException as error:
            raised.append(type(error))
            raise

    async def main() -> None:
        async with serving(app):
            job = await in_state(await charge.aenqueue(), State.DEAD)
            go.set()
            await until(lambda: raised)
            assert (job.failures, raised) == (1, [LeaseLost])
            assert (await app.handle(job.id).ainfo()).state is State.DEAD

    asyncio.run(main())
    assert orders(bed) == []
