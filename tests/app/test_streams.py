"""Who listens to a job gets all that it streams, in order, and learns how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import wraps
from typing import Any
from uuid import uuid4

import pytest

from tests.support.app_on_store import (
    Bed,
    Through,
    in_state,
    on_embedded_stores,
    serving,
    serving_in_a_thread,
    until,
)
from windlass import (
    CalledFromEventLoop,
    Context,
    Handle,
    JobCancelled,
    JobDead,
    ResultError,
    ResultTimeout,
    Retry,
    State,
    StoreUnavailable,
    StreamRestart,
    SyncContext,
    UnknownJob,
)

AT_ONCE = Retry(initial="1ms")
PATIENT = "60s"


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in an event loop of its own; the database of its bed is made before that."""

    @wraps(test)
    def run(bed: Bed, **fixtures: Any) -> None:
        assert bed.url
        asyncio.run(test(bed, **fixtures))

    return run


async def heard(handle: Handle[Any], **how: Any) -> list[Any]:
    return [chunk async for chunk in handle.astream(timeout=PATIENT, **how)]


@in_loop
async def test_a_listener_gets_each_chunk_while_the_job_runs(bed: Bed) -> None:
    app = bed.app()
    go_on = asyncio.Event()

    @app.job
    async def agent(ctx: Context) -> str:
        await ctx.stream("thinking")
        await go_on.wait()
        await ctx.stream({"tool": "search", "hits": [1, 2]})
        return "done"

    handle = await agent.aenqueue()
    async with serving(app):
        stream = handle.astream(timeout=PATIENT)
        assert await anext(stream) == "thinking"
        assert await handle.astate() is State.RUNNING
        go_on.set()
        assert [chunk async for chunk in stream] == [{"tool": "search", "hits": [1, 2]}]
        assert stream.position == "1-2"
        assert await handle.aresult() == "done"


@in_loop
async def test_a_listener_before_the_start_and_one_after_the_end_get_the_same(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def count(ctx: Context) -> None:
        for number in range(300):
            await ctx.stream(number)
            if number % 100 == 0:
                await asyncio.sleep(0.05)

    handle = await count.aenqueue()
    early = asyncio.create_task(heard(handle))
    async with serving(app):
        assert await early == list(range(300))
        await in_state(handle, State.COMPLETED)
        assert await heard(handle) == list(range(300))


@in_loop
async def test_a_def_handler_streams_from_its_thread(bed: Bed) -> None:
    app = bed.app()

    @app.job
    def load(ctx: SyncContext) -> None:
        for row in range(2_000):
            ctx.stream({"row": row})

    async with serving(app):
        chunks = await heard(await load.aenqueue())
    assert [chunk["row"] for chunk in chunks] == list(range(2_000))


@on_embedded_stores
def test_blocking_code_listens_with_a_plain_name(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def count(ctx: Context) -> None:
        for number in range(3):
            await ctx.stream(number)

    with serving_in_a_thread(app):
        stream = count.enqueue().stream(int, timeout=PATIENT)
        assert list(stream) == [0, 1, 2]
        assert stream.position == "1-3"


@on_embedded_stores
@in_loop
async def test_blocking_an_event_loop_with_a_stream_is_refused(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def count(ctx: Context) -> None: ...

    with pytest.raises(CalledFromEventLoop, match=r"async for chunk in handle\.astream"):
        next((await count.aenqueue()).stream())


@in_loop
async def test_a_listener_goes_on_where_another_stopped(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def count(ctx: Context) -> None:
        for number in range(10):
            await ctx.stream(number)

    async with serving(app):
        handle = await count.aenqueue()
        first = handle.astream(timeout=PATIENT)
        assert [await anext(first) for _ in range(4)] == [0, 1, 2, 3]
        assert first.position == "1-4"
        assert await heard(handle, after=first.position) == [4, 5, 6, 7, 8, 9]
        assert await heard(handle, after="1-10") == []


@on_embedded_stores
@in_loop
async def test_a_position_that_is_none_is_refused(bed: Bed) -> None:
    handle: Handle[None] = bed.app().handle(uuid4())
    for wrong in ("17", "1-x", "", "1-2-3", "-1-2"):
        with pytest.raises(ValueError, match="after must be the position of a stream"):
            handle.astream(after=wrong)


@in_loop
async def test_a_new_attempt_streams_anew_and_listeners_get_a_restart(bed: Bed) -> None:
    app = bed.app()
    heard_it = asyncio.Event()

    @app.job(retry=AT_ONCE)
    async def agent(ctx: Context) -> None:
        await ctx.stream(f"attempt {ctx.attempt}")
        if ctx.attempt == 1:
            await heard_it.wait()
            raise OSError("the model is gone")
        await ctx.stream("done")

    async with serving(app):
        handle = await agent.aenqueue()
        stream = handle.astream(timeout=PATIENT)
        assert await anext(stream) == "attempt 1"
        position = stream.position
        heard_it.set()
        rest = [chunk async for chunk in stream]
        assert rest == [StreamRestart(attempt=2, kept=0), "attempt 2", "done"]
        assert await heard(handle) == ["attempt 2", "done"]
        assert await heard(handle, after=position) == rest


@in_loop
async def test_a_job_that_dies_raises_after_its_last_chunk(bed: Bed) -> None:
    app = bed.app()

    @app.job(retry=Retry(max_retries=0))
    async def agent(ctx: Context) -> None:
        await ctx.stream("so far")
        raise OSError("the model is gone")

    async with serving(app):
        stream = (await agent.aenqueue()).astream(timeout=PATIENT)
        assert await anext(stream) == "so far"
        with pytest.raises(JobDead, match="the model is gone"):
            await anext(stream)


@in_loop
async def test_a_job_that_is_cancelled_raises_after_its_last_chunk(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def agent(ctx: Context) -> None:
        await ctx.stream("so far")
        await asyncio.sleep(60)

    async with serving(app):
        handle = await agent.aenqueue()
        stream = handle.astream(timeout=PATIENT)
        assert await anext(stream) == "so far"
        await handle.acancel()
        with pytest.raises(JobCancelled):
            await anext(stream)


@in_loop
async def test_a_run_that_is_cut_short_by_its_timeout_keeps_what_it_streamed(bed: Bed) -> None:
    app = bed.app()

    @app.job(timeout="100ms", retry=Retry(max_retries=0))
    async def agent(ctx: Context) -> None:
        for number in range(100):
            await ctx.stream(number)
        await asyncio.sleep(60)

    chunks = []
    async with serving(app):
        with pytest.raises(JobDead):
            async for chunk in (await agent.aenqueue()).astream(timeout=PATIENT):
                chunks.append(chunk)
    assert chunks == list(range(100))


@in_loop
async def test_a_job_that_never_streams_ends_the_loop(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def silent(ctx: Context) -> None: ...

    async with serving(app):
        assert await heard(await silent.aenqueue()) == []


@in_loop
async def test_listening_to_a_job_that_is_none_raises(bed: Bed) -> None:
    with pytest.raises(UnknownJob):
        await heard(bed.app().handle(uuid4()))


@on_embedded_stores
@in_loop
async def test_a_timeout_ends_a_wait_without_chunks(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def never(ctx: Context) -> None: ...

    handle = await never.aenqueue()
    with pytest.raises(ResultTimeout, match="no chunk within"):
        await anext(handle.astream(timeout="20ms"))


@on_embedded_stores
@in_loop
async def test_chunks_are_of_the_type_that_the_listener_names(bed: Bed) -> None:
    app = bed.app()

    @dataclass
    class Row:
        number: int

    @app.job
    async def load(ctx: Context) -> None:
        await ctx.stream(Row(1))
        await ctx.stream("two")

    async with serving(app):
        stream = (await load.aenqueue()).astream(Row, timeout=PATIENT)
        assert await anext(stream) == Row(1)
        with pytest.raises(ResultError, match="chunk 2 of its stream is of another type"):
            await anext(stream)


class Away(Through):
    """A store that does not answer listeners a few times."""

    failures = 3

    async def stream_read(self, *args: Any) -> Any:
        if self.failures > 0:
            self.failures -= 1
            raise StoreUnavailable("the store is away")
        return await self.inner.stream_read(*args)


@on_embedded_stores
@in_loop
async def test_a_listener_survives_a_store_that_is_away_for_a_moment(bed: Bed) -> None:
    app = bed.app(store=(away := Away(bed.store())))

    @app.job
    async def count(ctx: Context) -> None:
        for number in range(3):
            await ctx.stream(number)

    async with serving(app):
        assert await heard(await count.aenqueue()) == [0, 1, 2]
    assert away.failures == 0


@on_embedded_stores
@in_loop
async def test_a_listener_gives_up_on_a_store_that_stays_away(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.app.streams._OUTAGE_SECONDS", 0.05)
    app = bed.app(store=(away := Away(bed.store())))
    away.failures = 1_000_000
    with pytest.raises(StoreUnavailable, match="the store is away"):
        await heard(app.handle(uuid4()))


@in_loop
async def test_a_redriven_job_is_listened_to_again(bed: Bed) -> None:
    app = bed.app()

    @app.job(retry=Retry(max_retries=0))
    async def agent(ctx: Context) -> None:
        await ctx.stream(ctx.attempt)
        if ctx.attempt == 1:
            raise OSError("the model is gone")

    async with serving(app):
        handle = await agent.aenqueue()
        await in_state(handle, State.DEAD)
        await app.control.aredrive([handle.id])
        await until(lambda: _is_completed(handle))
        assert await heard(handle) == [2]
        assert await heard(handle, after="1-1") == [StreamRestart(attempt=2, kept=0), 2]


async def _is_completed(handle: Handle[Any]) -> bool:
    return await handle.astate() is State.COMPLETED
