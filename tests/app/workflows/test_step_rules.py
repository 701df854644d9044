"""What a handler may not do with steps, and what is said then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.support.app_on_store import Bed, in_state, on_embedded_stores, serving
from windlass import Context, Retry, State, StepError

pytestmark = pytest.mark.stores("postgres")
AT_ONCE = Retry(max_retries=5, initial="1ms")


def twice(number: int) -> int:
    return 2 * number


@on_embedded_stores
@pytest.mark.parametrize(
    ("before", "after", "expected", "came"),
    [
        ("ab", "ba", "'a'", "'b' came"),
        ("ab", "b", "'a'", "'b' came"),
        ("ab", "a", "'b'", "the handler ended"),
        ("ab", "axb", "'b'", "'x' came"),
        ("a", "", "'a'", "the handler ended"),
    ],
)
def test_changed_code_between_attempts_ends_the_job_and_says_what_has_changed(
    bed: Bed, before: str, after: str, expected: str, came: str
) -> None:
    app = bed.app()

    @app.job(retry=AT_ONCE)
    async def walk(ctx: Context) -> None:
        for name in before if ctx.attempt == 1 else after:
            await ctx.step(name, twice, 1)
        if ctx.attempt == 1:
            raise ConnectionError

    async def main() -> None:
        async with serving(app):
            job = await in_state(await walk.aenqueue(), State.DEAD)
        assert (job.attempt, job.reason) == (2, "permanent error")
        assert job.error is not None
        assert job.error.type == "windlass.StepsChanged"
        assert f"{expected} was recorded next, but {came}" in job.error.message

    asyncio.run(main())


@on_embedded_stores
def test_steps_may_be_added_after_those_that_are_recorded(bed: Bed) -> None:
    app = bed.app()

    @app.job(retry=AT_ONCE)
    async def walk(ctx: Context) -> str:
        for name in "ab" if ctx.attempt == 1 else "abc":
            await ctx.step(name, twice, 1)
        if ctx.attempt == 1:
            raise ConnectionError
        return "done"

    async def main() -> None:
        async with serving(app):
            assert await (await walk.aenqueue()).aresult("60s") == "done"

    asyncio.run(main())


@on_embedded_stores
def test_an_error_of_the_steps_cannot_be_passed_over(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def walk(ctx: Context) -> None:
        await ctx.step("a", twice, 1)
        for _ in range(2):
            with pytest.raises(StepError, match="two steps of one run are named"):
                await ctx.step("a", twice, 1)

    async def main() -> None:
        async with serving(app):
            job = await in_state(await walk.aenqueue(), State.DEAD)
        assert 'like f"a-{i}"' in str(job.error)

    asyncio.run(main())


async def in_another_step(ctx: Context) -> None:
    async def inner() -> None:
        await ctx.step("inner", twice, 1)

    await ctx.step("outer", inner)


async def asleep_in_another_task(ctx: Context) -> None:
    await asyncio.gather(ctx.sleep("1s"))


async def without_a_name(ctx: Context) -> None:
    await ctx.step("", twice, 1)


async def not_what_was_said(ctx: Context) -> None:
    def said() -> int:
        return "not a number"  # type: ignore[return-value]

    await ctx.step("wrong", said)


async def not_json(ctx: Context) -> None:
    await ctx.step("nan", lambda: float("nan"))


async def too_much(ctx: Context) -> None:
    await ctx.step("much", lambda: 300_000 * "x")


@on_embedded_stores
@pytest.mark.parametrize(
    ("trial", "remedy"),
    [
        (in_another_step, "call it in the handler"),
        (asleep_in_another_task, "must be called in the handler's own task"),
        (without_a_name, "a step must have a name"),
        (
            not_what_was_said,
            "'walk, step wrong' cannot be stored: it does not match the return annotation",
        ),
        (not_json, "NaN and infinities have no JSON form"),
        (too_much, "store it elsewhere and return a reference"),
    ],
)
def test_invalid_steps_are_refused_with_the_remedy(
    bed: Bed, trial: Callable[[Context], Awaitable[None]], remedy: str
) -> None:
    app = bed.app()

    @app.job
    async def walk(ctx: Context) -> None:
        await trial(ctx)

    async def main() -> None:
        async with serving(app):
            job = await in_state(await walk.aenqueue(), State.DEAD)
            assert remedy in str(job.error)
            assert job.attempt == 1

    asyncio.run(main())


@on_embedded_stores
def test_a_batch_has_no_steps(bed: Bed) -> None:
    app = bed.app()

    async def walk(ctx: Context, call_next: Any) -> Any:
        await ctx.step("a", twice, 1)
        return await call_next()

    @app.job(batch_size=2, batch_timeout="1ms", middleware=[walk])
    async def index(documents: list[int]) -> None:
        del documents

    async def main() -> None:
        async with serving(app):
            job = await in_state(await index.aenqueue(1), State.DEAD)
        assert "use steps in a kind without batch_size=" in str(job.error)

    asyncio.run(main())
