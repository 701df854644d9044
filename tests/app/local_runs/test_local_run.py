"""A job of the store runs in this process with its real payload, and nothing of it is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import psycopg
import pytest

from tests.support.app_on_store import STORES, Bed, in_state, serving
from windlass import Context, Inject, Job, Snooze, State, SyncContext, Windlass
from windlass.app.local_runs.local_run import LocalRun, run_here
from windlass.core.errors import InvalidTransition, UnknownJob, UnknownKind
from windlass.core.jobs.job import NewJob
from windlass.core.jobs.outcomes import Asleep, Failed, Snoozed, Succeeded
from windlass.core.workflows.step_log import Steps


class Pool:
    """Something that an app provides."""


on_every_store = pytest.mark.stores(*STORES)


async def run(app: Windlass, job_id: Any, **how: Any) -> tuple[LocalRun, Job]:
    """Run a job here, and check that the store has it as before; return both."""
    before = await app.store.get(job_id)
    ended = await run_here(app, job_id, **how)
    assert await app.store.get(job_id) == before
    assert before is not None
    return ended, before


@on_every_store
def test_a_dead_job_fails_here_as_it_did_and_stays_as_it_is(bed: Bed) -> None:
    app = bed.app()

    @app.job(max_retries=0)
    async def charge(order: int) -> None:
        raise ValueError(f"order {order}")

    async def main() -> None:
        async with serving(app):
            handle = await charge.aenqueue(7)
            await in_state(handle, State.DEAD)
        await app.store.open()
        ended, before = await run(app, handle.id)
        assert isinstance(ended.outcome, Failed)
        assert isinstance(ended.error, ValueError)
        assert str(ended.error) == "order 7"
        assert ended.job.attempt == before.attempt + 1
        assert ended.next is not None
        assert ended.next.state is State.DEAD
        await app.aclose()

    asyncio.run(main())


@pytest.mark.parametrize("error", [SystemExit(), SystemExit(4), KeyboardInterrupt()])
def test_a_def_handler_that_would_end_the_program_fails_here_as_in_a_worker(
    bed: Bed, error: BaseException
) -> None:
    app = bed.app()

    @app.job(max_retries=0)
    def leave() -> None:
        raise error

    async def main() -> None:
        ended, _ = await run(app, (await leave.aenqueue()).id)
        assert ended.error is error
        assert ended.next is not None
        assert ended.next.state is State.DEAD
        await app.aclose()

    asyncio.run(main())


@on_every_store
def test_recorded_steps_are_not_run_again_and_new_ones_are_not_recorded(bed: Bed) -> None:
    app = bed.app()
    calls: list[str] = []

    def step(name: str) -> str:
        calls.append(name)
        return name

    @app.job(max_retries=0)
    async def ship(ctx: Context) -> str:
        await ctx.step("pack", step, "pack")
        if len(calls) == 1:
            raise ConnectionError
        await ctx.stream("packed")
        await ctx.step("send", step, "send")
        ctx.progress(0.5, "half way")
        return "shipped"

    async def main() -> None:
        async with serving(app):
            handle = await ship.aenqueue()
            await in_state(handle, State.DEAD)
        await app.store.open()
        calls.append("between")
        said: list[float] = []
        ended, before = await run(
            app, handle.id, progress=lambda progress: said.append(progress.fraction)
        )
        assert calls == ["pack", "between", "send"]
        assert ended.outcome == Succeeded(result=b'"shipped"')
        assert Steps(before.steps).names == ["pack"]
        assert Steps(ended.job.steps).names == ["pack", "send"]
        assert (ended.streamed, said) == (1, [0.5])
        await app.aclose()

    asyncio.run(main())


@on_every_store
def test_a_wait_for_an_event_parks_nothing_and_takes_an_event_that_is_there(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def ship(ctx: Context) -> Any:
        return await ctx.wait_for("paid:7", timeout="1d")

    async def main() -> None:
        await app.store.open()
        handle = await ship.aenqueue()
        ended, _ = await run(app, handle.id)
        assert isinstance(ended.outcome, Asleep)
        assert ended.next is None
        async with serving(app):
            await app.asend_event("paid:7", {"sum": 3})
            await in_state(handle, State.COMPLETED)
        ended, _ = await run(app, handle.id, again=True)
        assert ended.outcome == Succeeded(result=b'{"sum":3}')
        await app.aclose()

    asyncio.run(main())


@pytest.mark.parametrize("bed", ["postgres"], indirect=True)
@pytest.mark.parametrize("blocking", [False, True])
def test_a_transaction_of_the_handler_is_rolled_back(bed: Bed, blocking: bool) -> None:
    app = bed.app()
    with psycopg.connect(bed.url) as db:
        db.execute("CREATE TABLE paid (number int)")

    @app.job
    async def pay(ctx: Context, number: int) -> None:
        async with ctx.transaction() as conn:
            await conn.execute("INSERT INTO paid VALUES (%s)", [number])

    @app.job
    def pay_blocking(ctx: SyncContext, number: int) -> None:
        with ctx.transaction() as conn:
            conn.execute("INSERT INTO paid VALUES (%s)", [number])

    async def main() -> None:
        await app.store.open()
        handle = await (pay_blocking if blocking else pay).aenqueue(7)
        ended, _ = await run(app, handle.id)
        assert isinstance(ended.outcome, Succeeded), ended.error
        assert (ended.transactions, ended.next) == (1, None)
        await app.aclose()

    asyncio.run(main())
    with psycopg.connect(bed.url) as db:
        assert db.execute("SELECT count(*) FROM paid").fetchone() == (0,)


def test_hooks_and_provided_values_are_as_in_a_worker(bed: Bed) -> None:
    app = bed.app()
    said: list[str] = []

    @app.provide
    async def pool() -> AsyncIterator[Pool]:
        said.append("opened")
        yield Pool()
        said.append("closed")

    @app.on_start
    def start() -> None:
        said.append("started")

    @app.on_job_error
    def alarm(ctx: Context, error: BaseException) -> None:
        said.append("alarm")

    @app.job(isolate=True)
    def work(ctx: SyncContext, pool: Pool = Inject) -> Snooze:
        said.append(type(pool).__name__)
        return Snooze("10m")

    async def main() -> None:
        await app.store.open()
        handle = await work.aenqueue()
        ended, _ = await run(app, handle.id)
        assert isinstance(ended.outcome, Snoozed), ended.error
        assert said == ["opened", "started", "Pool", "closed"]
        await app.aclose()

    asyncio.run(main())


def test_a_batch_runs_with_its_only_job(bed: Bed) -> None:
    app = bed.app()

    @app.job(batch_size=100, batch_timeout="1h")
    async def index(pages: Sequence[int]) -> list[int]:
        return [2 * page for page in pages]

    async def main() -> None:
        await app.store.open()
        handle = await index.aenqueue(21)
        ended, _ = await run(app, handle.id)
        assert ended.outcome == Succeeded(result=b"42"), ended.error
        await app.aclose()

    asyncio.run(main())


def test_a_job_that_has_not_failed_is_run_only_again(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def fine() -> int:
        return 7

    async def main() -> None:
        await app.store.open()
        waiting = await fine.aenqueue()
        assert (await run(app, waiting.id))[0].outcome == Succeeded(result=b"7")
        async with serving(app):
            await waiting.aresult("60s")
        with pytest.raises(InvalidTransition, match="a second time"):
            await run_here(app, waiting.id)
        assert (await run(app, waiting.id, again=True))[0].outcome == Succeeded(result=b"7")
        with pytest.raises(UnknownJob):
            await run_here(app, app.ids.next())
        unknown = NewJob(id=app.ids.next(), kind="nobody", payload=b"{}")
        await app.store.enqueue([unknown])
        with pytest.raises(UnknownKind):
            await run_here(app, unknown.id)
        await app.aclose()

    asyncio.run(main())
