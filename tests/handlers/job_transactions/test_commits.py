"""`ctx.transaction()`: what a handler does in the database, and that its job is done, at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.types.array import ListDumper
from psycopg.types.json import JsonbDumper

from tests.handlers.job_transactions.orders import orders
from tests.support.app_on_store import STORES, Bed, charged, in_state, log_lines, serving, until
from windlass import AnyContext, Context, Job, State, StoreUnavailable, SyncContext
from windlass.core.errors import LeaseLost

pytestmark = pytest.mark.stores(*STORES)
INSERT = "INSERT INTO orders VALUES (%s)"


def steal(bed: Bed, job_id: UUID) -> None:
    """Put a running job under another fence, as a rescue by another worker does."""
    with psycopg.connect(bed.url) as db:
        db.execute("UPDATE windlass.jobs SET token = 42, worker = 'rival' WHERE id = %s", [job_id])


def test_the_users_rows_and_the_completion_are_one_commit(bed: Bed) -> None:
    app = bed.app()
    before: list[tuple[list[int], str]] = []

    def look(ctx: AnyContext) -> None:
        with psycopg.connect(bed.url) as db:
            row = db.execute("SELECT state FROM windlass.jobs WHERE id = %s", [ctx.job_id])
            before.append((orders(bed), str((row.fetchone() or [""])[0])))

    @app.job
    async def in_a_loop(ctx: Context, n: int) -> None:
        async with ctx.transaction() as conn:
            await conn.execute(INSERT, [n])
            look(ctx)
        assert orders(bed) == [n]
        assert (await app.handle(ctx.job_id).ainfo()).state is State.COMPLETED

    @app.job
    def in_a_thread(ctx: SyncContext, n: int) -> None:
        with ctx.transaction() as conn:
            conn.execute(INSERT, [n])
            look(ctx)
        assert app.handle(ctx.job_id).state() is State.COMPLETED

    async def main() -> None:
        async with serving(app) as worker:
            await in_state(await in_a_loop.aenqueue(1), State.COMPLETED)
            await in_state(await in_a_thread.aenqueue(2), State.COMPLETED)
            await until(lambda: worker.processed == 2)

    asyncio.run(main())
    assert before == [([], "running"), ([1], "running")]
    assert orders(bed) == [1, 2]


@pytest.mark.parametrize("everywhere", [False, True], ids=["on the connection", "everywhere"])
def test_a_program_may_send_lists_as_json(
    bed: Bed, caplog: pytest.LogCaptureFixture, *, everywhere: bool
) -> None:
    """Prevents that a program's adapters keep its jobs from being done, or the worker from work."""
    app = bed.app()
    types: list[object] = []

    @app.job
    async def in_a_loop(ctx: Context, n: int) -> None:
        async with ctx.transaction() as conn:
            if not everywhere:
                conn.adapters.register_dumper(list, JsonbDumper)
            answer = await conn.execute("SELECT pg_typeof(%s)::text", [["a list"]])
            types.append((await answer.fetchone() or [None])[0])
            await conn.execute(INSERT, [n])

    @app.job
    def in_a_thread(ctx: SyncContext, n: int) -> None:
        with ctx.transaction() as conn:
            if not everywhere:
                conn.adapters.register_dumper(list, JsonbDumper)
            conn.execute(INSERT, [n])

    async def main() -> None:
        async with serving(app):
            for n in (0, 2):
                await in_state(await in_a_loop.aenqueue(n), State.COMPLETED)
                await in_state(await in_a_thread.aenqueue(n + 1), State.COMPLETED)

    try:
        if everywhere:
            psycopg.adapters.register_dumper(list, JsonbDumper)
        asyncio.run(main())
    finally:
        psycopg.adapters.register_dumper(list, ListDumper)
    assert orders(bed) == [0, 1, 2, 3]
    assert types == ["jsonb"] * 2
    assert log_lines(caplog, "shutdown.incomplete") == []


def test_a_block_that_raises_leaves_nothing_and_the_job_fails_as_usual(bed: Bed) -> None:
    app = bed.app()

    @app.job(max_retries=0)
    async def in_a_loop(ctx: Context, n: int) -> None:
        async with ctx.transaction() as conn:
            await conn.execute(INSERT, [n])
            raise LookupError("no")

    @app.job(max_retries=0)
    def in_a_thread(ctx: SyncContext, n: int) -> None:
        with ctx.transaction() as conn:
            conn.execute(INSERT, [n])
            raise LookupError("no")

    @app.job(max_retries=0)
    async def refused_by_the_server(ctx: Context, n: int) -> None:
        async with ctx.transaction() as conn:
            await conn.execute(INSERT, [n])
            await conn.execute(INSERT, [n])

    async def main() -> None:
        async with serving(app):
            for job, error in (
                (in_a_loop, "LookupError"),
                (in_a_thread, "LookupError"),
                (refused_by_the_server, "UniqueViolation"),
            ):
                dead = await in_state(await job.aenqueue(1), State.DEAD)
                assert dead.error is not None
                assert dead.error.type.endswith(error)

    asyncio.run(main())
    assert orders(bed) == []


def test_a_failed_block_is_retried_and_its_work_is_done_once(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def charge(ctx: Context, n: int) -> None:
        async with ctx.transaction() as conn:
            await conn.execute(INSERT, [n])
            if ctx.attempt == 1:
                raise ConnectionError("not yet")

    async def main() -> None:
        async with serving(app):
            handle = await charge.aenqueue(1)
            await charged(handle, 1)
            await app.control.aretry(handle.id)
            job = await in_state(handle, State.COMPLETED)
            assert (job.attempt, job.failures) == (2, 1)

    asyncio.run(main())
    assert orders(bed) == [1]


def test_a_handler_may_catch_what_a_block_raised_and_try_another(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def charge(ctx: Context, n: int) -> None:
        for _ in range(2):
            try:
                async with ctx.transaction() as conn:
                    await conn.execute(INSERT, [n])
                    await conn.execute("SELECT 1 / %s", [n - 1])
                return
            except psycopg.errors.DivisionByZero:
                n += 1

    async def main() -> None:
        async with serving(app):
            await in_state(await charge.aenqueue(1), State.COMPLETED)

    asyncio.run(main())
    assert orders(bed) == [2]


@pytest.mark.parametrize("pool", ["loop", "threads"])
def test_a_fenced_transaction_commits_nothing(
    bed: Bed, pool: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = bed.app()
    raised: list[Exception] = []

    async def in_a_loop(ctx: Context, n: int) -> None:
        try:
            async with ctx.transaction() as conn:
                await conn.execute(INSERT, [n])
                steal(bed, ctx.job_id)
        except LeaseLost as error:
            raised.append(error)
            raise

    def in_a_thread(ctx: SyncContext, n: int) -> None:
        try:
            with ctx.transaction() as conn:
                conn.execute(INSERT, [n])
                steal(bed, ctx.job_id)
        except LeaseLost as error:
            raised.append(error)
            raise

    handler: Callable[..., Any] = in_a_loop if pool == "loop" else in_a_thread
    job = app.job(name="charge")(handler)

    async def main() -> None:
        async with serving(app, lease="1h"):
            handle = await job.aenqueue(1)
            await until(lambda: log_lines(caplog, "job.fenced"))
            seen = await handle.ainfo()
            assert (seen.state, seen.token, seen.failures) == (State.RUNNING, 42, 0)
            assert [getattr(error, "job_id", None) for error in raised] == [handle.id]

    asyncio.run(main())
    assert orders(bed) == []


def test_the_transaction_of_a_rescued_job_commits_nothing(bed: Bed) -> None:
    """The same by the true way: the lease ends, and another worker takes the job over."""
    app = bed.app()
    began, go = asyncio.Event(), asyncio.Event()
    fenced: list[UUID] = []

    @app.job
    async def charge(ctx: Context, n: int) -> None:
        try:
            async with ctx.transaction() as conn:
                await conn.execute(INSERT, [n])
                began.set()
                await go.wait()
        except LeaseLost as error:
            fenced.append(error.job_id)
            raise

    async def main() -> None:
        async with serving(app, lease="1h") as worker:
            handle = await charge.aenqueue(1)
            await began.wait()
            with psycopg.connect(bed.url) as db:
                db.execute(
                    "INSERT INTO windlass.workers SELECT 'rival', info, pulse, interval '1 s', "
                    "now() - interval '1 h', now(), now() - interval '1 h', now() + interval '1 h' "
                    "FROM windlass.workers WHERE id = %s",
                    [worker.id],
                )
            rescued: list[Job] = []
            while not rescued:  # A heartbeat may renew the lease between the two.
                with psycopg.connect(bed.url) as db:
                    db.execute(
                        "UPDATE windlass.workers SET lease_until = now() WHERE id = %s", [worker.id]
                    )
                rescued = await app.store.rescue(worker="rival", token=99, limit=10)
            assert [job.id for job in rescued] == [handle.id]
            go.set()
            await until(lambda: fenced)
            assert ((await handle.ainfo()).state, fenced) == (State.RUNNING, [handle.id])

    asyncio.run(main())
    assert orders(bed) == []


def test_changes_that_a_user_makes_to_the_connection_are_reset(bed: Bed) -> None:
    """Prevents: another row factory that the next borrower of the connection trips over."""
    app = bed.app(pool_size=1, pool_overflow=0)

    @app.job
    async def in_a_loop(ctx: Context) -> None:
        async with ctx.transaction() as conn:
            conn.row_factory = dict_row
            conn.cursor_factory = psycopg.AsyncRawCursor
            cursor = await conn.execute("SELECT $1::integer AS n", [1])
            assert await cursor.fetchone() == {"n": 1}

    @app.job
    def in_a_thread(ctx: SyncContext) -> None:
        with ctx.transaction() as conn:
            conn.row_factory = dict_row
            conn.cursor_factory = psycopg.RawCursor
            assert conn.execute("SELECT $1::integer AS n", [1]).fetchone() == {"n": 1}

    async def main() -> None:
        async with serving(app):
            for job in (in_a_loop, in_a_thread, in_a_loop):
                await in_state(await job.aenqueue(), State.COMPLETED)
            await asyncio.to_thread(in_a_thread.enqueue)
            await asyncio.to_thread(in_a_loop.enqueue)

    asyncio.run(main())


def test_jobs_are_enqueued_in_the_transaction_that_completes_one(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def next_step(n: int) -> int:
        return n

    @app.job(max_retries=0)
    async def first_step(ctx: Context, fail: bool) -> None:
        async with ctx.transaction() as conn:
            await next_step.using(tx=conn, unique=f"after {fail}").aenqueue(1)
            if fail:
                raise LookupError

    async def main() -> None:
        async with serving(app):
            await in_state(await first_step.aenqueue(True), State.DEAD)
            await in_state(await first_step.aenqueue(False), State.COMPLETED)
            counted = {kind: count async for kind, count in kinds_of(bed) if kind.endswith("_step")}
            assert counted == {"first_step": 2, "next_step": 1}

    asyncio.run(main())


async def kinds_of(bed: Bed) -> Any:
    async with await psycopg.AsyncConnection.connect(bed.url) as db:
        words = "SELECT job_type, count(*) FROM windlass.job_queue GROUP BY 1"
        for row in await (await db.execute(words)).fetchall():
            yield row


def test_a_lost_connection_frees_its_place_in_the_pool(bed: Bed) -> None:
    """Prevents: a pool that has one place less after each transaction that could not begin."""
    app = bed.app(pool_size=1, pool_overflow=0)

    @app.job
    async def in_a_loop(ctx: Context) -> None:
        await app.handle(ctx.job_id).ainfo()
        end_connections(bed)
        while not ctx.settled:
            with suppress(StoreUnavailable):
                async with ctx.transaction() as conn:
                    await conn.execute(INSERT, [1])

    @app.job
    def in_a_thread(ctx: SyncContext) -> None:
        in_a_thread.using(delay="1h").enqueue()
        end_connections(bed)
        while not ctx.settled:
            with suppress(StoreUnavailable), ctx.transaction() as conn:
                conn.execute(INSERT, [2])

    async def main() -> None:
        async with serving(app) as worker:
            await in_a_loop.aenqueue()
            await until(lambda: worker.processed == 1, within=60)
            await in_a_thread.aenqueue()
            await until(lambda: worker.processed == 2, within=60)

    asyncio.run(main())
    assert orders(bed) == [1, 2]


def end_connections(bed: Bed) -> None:
    with psycopg.connect(bed.url, application_name="tests") as db:
        db.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND application_name = 'windlass'"
        )
