"""A test that moves the time of its app can listen to its jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from windlass import Context, JobDead, ResultTimeout, Retry, StreamRestart, SyncContext, Windlass
from windlass.testing import Travel, travel_fixture

app = Windlass("postgresql://nobody@nowhere.invalid/none")
t = travel_fixture(app)


@app.job(retry=Retry(max_retries=2, initial="1h"))
async def agent(ctx: Context, fails: int) -> str:
    await ctx.stream(f"attempt {ctx.attempt}")
    if ctx.attempt <= fails:
        raise OSError("no answer")
    return "done"


@app.job(isolate=True)
def load(ctx: SyncContext) -> None:
    for row in range(1_000):
        ctx.stream(row)


@app.job
async def approval(ctx: Context) -> None:
    await ctx.stream("asked")
    await ctx.stream(await ctx.wait_for("answer", timeout="7d"))


def test_the_chunks_of_a_job_are_there_after_its_run(t: Travel) -> None:
    handle = load.enqueue()
    t.run_due()
    assert list(handle.stream(int)) == list(range(1_000))


def test_a_listener_follows_a_job_over_days(t: Travel) -> None:
    handle = agent.enqueue(2)
    t.run_due()
    stream = handle.stream(timeout="50ms")
    assert next(stream) == "attempt 1"
    with pytest.raises(ResultTimeout, match="no chunk within"):
        next(stream)
    t.advance("1d")
    assert list(stream) == [StreamRestart(attempt=3, kept=0), "attempt 3"]
    assert list(handle.stream()) == ["attempt 3"]


def test_a_job_that_dies_raises_at_the_end_of_its_stream(t: Travel) -> None:
    stream = agent.enqueue(9).stream(timeout="5s")
    t.run_all()
    assert next(stream) == "attempt 3"
    with pytest.raises(JobDead, match="no answer"):
        next(stream)


def test_a_wait_of_days_keeps_the_stream(t: Travel) -> None:
    handle = approval.enqueue()
    t.advance("3d")
    app.send_event("answer", "yes")
    t.advance("1m")
    assert list(handle.stream()) == ["asked", "yes"]


def test_a_coroutine_listens_while_it_moves_the_time(t: Travel) -> None:
    async def main() -> list[object]:
        handle = await agent.aenqueue(0)
        listening = asyncio.create_task(_heard(handle.astream(timeout="30s")))
        await t.arun_due()
        return await listening

    assert asyncio.run(main()) == ["attempt 1"]


async def _heard(stream: AsyncIterator[object]) -> list[object]:
    return [chunk async for chunk in stream]
