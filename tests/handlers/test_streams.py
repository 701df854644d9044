"""What a handler streams is bounded, in order and there once, whatever happens to its run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from tests.handlers.streaming import PATIENT, heard, run
from tests.support.app_on_store import Bed, Through, in_state, on_embedded_stores, serving, until
from windlass import (
    CalledFromEventLoop,
    Context,
    Handle,
    InvalidTransition,
    LeaseLost,
    PermanentError,
    Retry,
    State,
    StoreUnavailable,
    StreamRestart,
    SyncContext,
)
from windlass.core.jobs.streams import Appended, ChunkGroup

AT_ONCE = Retry(initial="1ms")
on_memory = pytest.mark.parametrize("bed", ["memory"], indirect=True)
on_postgres = pytest.mark.parametrize("bed", ["postgres"], indirect=True)


# -- steps -----------------------------------------------------------------------------------------


@on_embedded_stores
def test_chunks_from_before_a_recorded_step_are_there_once(bed: Bed) -> None:
    """Those of the step that failed, and what came after it, are streamed by the next attempt."""
    app = bed.app()

    @app.job(retry=AT_ONCE)
    async def agent(ctx: Context) -> str:
        async def think() -> str:
            await ctx.stream("thinking")
            return "thought"

        async def act() -> str:
            await ctx.stream(f"acting {ctx.attempt}")
            if ctx.attempt < 3:
                raise OSError
            return "acted"

        await ctx.stream("begin")
        await ctx.step("think", think)
        await ctx.stream("between")
        await ctx.step("act", act)
        await ctx.stream("end")
        return "done"

    assert run(app, agent) == ("done", ["begin", "thinking", "between", "acting 3", "end"])


@on_embedded_stores
def test_a_def_handler_with_steps_streams_each_chunk_once(bed: Bed) -> None:
    app = bed.app()

    @app.job(retry=AT_ONCE)
    def load(ctx: SyncContext) -> str:
        for page in range(3):
            ctx.stream(f"page {page}")
            ctx.step(f"page {page}", ctx.stream, f"inside {page}")
            if ctx.attempt <= page:
                raise OSError
        return "done"

    pages = [text for page in range(3) for text in (f"page {page}", f"inside {page}")]
    assert run(app, load) == ("done", pages)


@on_embedded_stores
def test_a_sleep_and_a_wait_keep_what_was_streamed(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def agent(ctx: Context) -> str:
        await ctx.stream("the plan")
        await ctx.sleep("1ms")
        await ctx.stream("slept")
        await ctx.stream("waiting")
        answer = await ctx.wait_for("approval")
        await ctx.stream(answer)
        return f"attempt {ctx.attempt}"

    async def main() -> None:
        async with serving(app):
            handle = await agent.aenqueue()
            stream = handle.astream(timeout=PATIENT)
            heard_so_far = [await anext(stream) for _ in range(3)]
            assert heard_so_far == ["the plan", "slept", "waiting"]
            await until(lambda: _waits(handle))
            await app.asend_event("approval", "yes")
            # No restart: nothing that was heard is streamed again.
            assert [chunk async for chunk in stream] == ["yes"]
            assert await heard(handle) == [*heard_so_far, "yes"]
            assert await handle.aresult() == "attempt 3"

    asyncio.run(main())


async def _waits(handle: Handle[Any]) -> bool:
    return (await handle.ainfo()).waiting_for is not None


@on_memory
def test_the_undo_of_a_job_streams_only_what_its_undos_do(bed: Bed) -> None:
    app = bed.app()

    @app.job(retry=AT_ONCE)
    async def booking(ctx: Context) -> None:
        async def book() -> None:
            await ctx.stream("booking")

        async def cancel() -> None:
            await ctx.stream("cancelling")

        await ctx.stream("begin")
        await ctx.step("book", book, undo=cancel)
        raise PermanentError("no seats")

    async def main() -> None:
        async with serving(app):
            handle = await booking.aenqueue()
            await in_state(handle, State.DEAD)
            stream = handle.astream(timeout=PATIENT)
            assert [await anext(stream) for _ in range(3)] == ["begin", "booking", "cancelling"]

    asyncio.run(main())


@on_embedded_stores
def test_a_listener_keeps_what_a_restart_says(bed: Bed) -> None:
    app = bed.app()
    heard_it = asyncio.Event()

    @app.job(retry=AT_ONCE)
    async def agent(ctx: Context) -> None:
        await ctx.stream("a")
        await ctx.step("one", lambda: None)
        await ctx.stream("b")
        await ctx.stream(f"c{ctx.attempt}")
        if ctx.attempt == 1:
            await heard_it.wait()
            raise OSError

    async def main() -> None:
        async with serving(app):
            stream = (await agent.aenqueue()).astream(timeout=PATIENT)
            assert [await anext(stream) for _ in range(3)] == ["a", "b", "c1"]
            heard_it.set()
            rest = [chunk async for chunk in stream]
            assert rest == [StreamRestart(attempt=2, kept=1), "b", "c2"]

    asyncio.run(main())


# -- transactions ----------------------------------------------------------------------------------


@on_postgres
def test_a_transaction_that_completes_the_job_keeps_its_chunks(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def pay(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            for number in range(100):
                await ctx.stream(number)
            await connection.execute("SELECT 1")
        with pytest.raises(InvalidTransition, match=r"stream before the end of ctx\.transaction"):
            await ctx.stream("too late")

    @app.job
    def pay_blocking(ctx: SyncContext) -> None:
        with ctx.transaction() as connection:
            for number in range(100):
                ctx.stream(number)
            connection.execute("SELECT 1")
        with pytest.raises(InvalidTransition):
            ctx.stream("too late")

    for job in (pay, pay_blocking):
        assert run(app, job) == (None, list(range(100)))


# -- trouble ---------------------------------------------------------------------------------------


class Failing(Through):
    """A store that cannot add chunks: it is away for a while, or says that the lease is lost."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.is_away = True
        self.is_lost = False
        self.groups: list[ChunkGroup] = []

    async def stream_append(self, groups: Sequence[ChunkGroup]) -> list[Appended | None]:
        if self.is_away:
            # Written, but the answer is lost: so it is sent again.
            await self.inner.stream_append(groups)
            raise StoreUnavailable("the store is away")
        if self.is_lost:
            return [None for _ in groups]
        self.groups += groups
        return await self.inner.stream_append(groups)


@on_embedded_stores
def test_a_handler_waits_for_a_store_that_is_away_and_nothing_is_lost(bed: Bed) -> None:
    store = Failing(bed.store())
    app = bed.app(store=store)
    done = 0

    @app.job
    async def much(ctx: Context) -> str:
        nonlocal done
        for number in range(2_000):
            await ctx.stream(number)
            done = number
        return "done"

    async def main() -> None:
        async with serving(app):
            handle = await much.aenqueue()
            await until(lambda: done >= 400)
            assert done < 1_500  # The buffer is full long before the end.
            store.is_away = False
            assert await heard(handle) == list(range(2_000))
            assert await handle.aresult() == "done"

    asyncio.run(main())


@on_memory
def test_a_lost_lease_ends_the_run_that_streams(bed: Bed) -> None:
    store = Failing(bed.store())
    store.is_away, store.is_lost = False, True
    app = bed.app(store=store)
    errors: list[BaseException] = []

    @app.job
    async def much(ctx: Context) -> None:
        try:
            while True:
                await ctx.stream("chunk")
                await asyncio.sleep(0)
        except BaseException as error:
            errors.append(error)
            store.is_lost = False
            raise

    async def main() -> None:
        async with serving(app):
            await much.aenqueue()
            await until(lambda: errors)

    asyncio.run(main())
    assert isinstance(errors[0], LeaseLost | asyncio.CancelledError)


@on_memory
def test_a_thousand_chunks_a_second_are_written_in_groups(bed: Bed) -> None:
    store = Failing(bed.store())
    store.is_away = False
    app = bed.app(store=store)

    @app.job
    async def fast(ctx: Context) -> None:
        for number in range(1_000):
            await ctx.stream(number)
            if number % 10 == 0:
                await asyncio.sleep(0.01)

    assert run(app, fast) == (None, list(range(1_000)))
    assert len(store.groups) < 300
    offsets = [group.offset for group in store.groups]
    assert offsets == sorted(offsets)


@on_memory
def test_threads_of_one_handler_stream_without_losing_a_chunk(bed: Bed) -> None:
    app = bed.app()

    @app.job
    def load(ctx: SyncContext) -> None:
        def part(name: int) -> None:
            for number in range(500):
                ctx.stream([name, number])

        threads = [threading.Thread(target=part, args=[name]) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    _, chunks = run(app, load)
    for name in range(4):
        assert [number for its, number in chunks if its == name] == list(range(500))


@on_memory
def test_the_blocking_form_is_refused_in_an_event_loop(bed: Bed) -> None:
    app = bed.app()

    @app.job
    def wrong(ctx: SyncContext) -> None:
        async def inside() -> None:
            with pytest.raises(CalledFromEventLoop, match=r"await ctx.stream"):
                ctx.stream("chunk")

        asyncio.run(inside())

    assert run(app, wrong) == (None, [])
