"""A stream is bounded in chunks and bytes, and says which setting bounds it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.handlers.streaming import run
from tests.support.app_on_store import Bed, in_state, serving
from windlass import ChunkInvalid, Context, PermanentError, Retry, State, StreamFull

AT_ONCE = Retry(initial="1ms")
on_memory = pytest.mark.parametrize("bed", ["memory"], indirect=True)


# -- bounds ----------------------------------------------------------------------------------------


@on_memory
def test_too_many_chunks_are_refused_by_an_error_that_names_the_setting(bed: Bed) -> None:
    app = bed.app(max_stream_chunks=3)

    @app.job
    async def much(ctx: Context) -> str:
        for number in range(3):
            await ctx.stream(number)
        with pytest.raises(StreamFull, match=r"at most 3 chunks, got one more.*MAX_STREAM_CHUNKS"):
            await ctx.stream(3)
        return "went on"

    assert run(app, much) == ("went on", [0, 1, 2])


@on_memory
def test_too_many_bytes_are_refused_by_an_error_that_names_the_setting(bed: Bed) -> None:
    app = bed.app(max_stream=100)

    @app.job
    async def much(ctx: Context) -> str:
        with pytest.raises(StreamFull, match=r"at most 100 bytes, got .*WINDLASS_MAX_STREAM"):
            await ctx.stream("x" * 1_000)
        await ctx.stream("x" * 88)
        await ctx.stream("y" * 8)
        with pytest.raises(StreamFull, match="at most 100 bytes, got 101; store the data elsewh"):
            await ctx.stream(0)
        return "went on"

    assert run(app, much) == ("went on", ["x" * 88, "y" * 8])


@on_memory
def test_a_full_stream_kills_the_job_that_does_not_handle_it(bed: Bed) -> None:
    """A retry would fill it again."""
    app = bed.app(max_stream_chunks=1)

    @app.job(retry=AT_ONCE)
    async def much(ctx: Context) -> None:
        await ctx.stream(1)
        await ctx.stream(2)

    async def main() -> None:
        async with serving(app):
            job = await in_state(await much.aenqueue(), State.DEAD)
            assert job.attempt == 1

    assert issubclass(StreamFull, PermanentError)
    asyncio.run(main())


@on_memory
def test_chunks_of_earlier_attempts_count_if_they_are_kept(bed: Bed) -> None:
    app = bed.app(max_stream_chunks=5)

    @app.job(retry=AT_ONCE)
    async def steps(ctx: Context) -> str:
        for name in ("a", "b"):
            await ctx.stream(f"before {name}")
            await ctx.step(name, lambda: None)
        if ctx.attempt == 1:
            await ctx.stream("replaced")
            raise OSError
        for number in range(3):
            await ctx.stream(number)
        with pytest.raises(StreamFull):
            await ctx.stream(3)
        return "went on"

    assert run(app, steps) == ("went on", ["before a", "before b", 0, 1, 2])


@on_memory
@pytest.mark.parametrize("value", [object(), float("nan"), "\x00", {"a": {1, object()}}])
def test_a_chunk_without_a_json_form_is_refused(bed: Bed, value: Any) -> None:
    app = bed.app()

    @app.job
    async def wrong(ctx: Context) -> str:
        with pytest.raises(ChunkInvalid, match="a chunk in the stream of 'wrong' cannot be stored"):
            await ctx.stream(value)
        await ctx.stream("right")
        return "went on"

    assert run(app, wrong) == ("went on", ["right"])
