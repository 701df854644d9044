"""A claimed job starts within 50 ms, or is given back for somebody who has time."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.support.app_on_store import PROMPT, QUICK, Bed, until
from windlass import Handle, Job, State
from windlass.worker.engine import start_pace as pace


@pytest.fixture(autouse=True)
def calm() -> None:
    """Keep the limit of a real worker."""


async def all_jobs(handles: list[Handle[Any]]) -> list[Job]:
    return [await handle.ainfo() for handle in handles]


def test_jobs_that_a_busy_loop_cannot_start_soon_are_given_back_uncharged_and_rarely(
    bed: Bed,
) -> None:
    app = bed.app()
    began: dict[str, float] = {}

    @app.job
    async def labour(number: int) -> None:
        began[str(number)] = time.monotonic()
        time.sleep(0.003)  # noqa: ASYNC251 - a handler that should not do that, and does.

    async def main() -> None:
        handles = await app.aenqueue_many(labour.draft(number) for number in range(300))
        await asyncio.wait_for(app.arun_worker(burst=True, **QUICK), 60)
        jobs = await all_jobs(handles)
        assert {job.state for job in jobs} == {State.COMPLETED}
        assert not any(job.failures or job.crashes for job in jobs)
        assert not any(job.history for job in jobs), "what never began is no attempt"
        # Of the first hundred most; then it is known how many can begin.
        assert 50 <= sum(job.attempt - 1 for job in jobs) <= 150

    asyncio.run(main())
    assert len(began) == 300


def test_jobs_that_wait_for_something_are_not_given_back(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: a bound on starts that would keep slots empty.

    The machine may be busy with others: that is no fault of these jobs.
    """
    monkeypatch.setattr(pace, "MAX_START_SECONDS", PROMPT)
    app = bed.app()
    now = most = 0
    go = asyncio.Event()

    @app.job
    async def wait() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await go.wait()
        now -= 1

    async def main() -> None:
        handles = await app.aenqueue_many(wait.draft() for _ in range(250))
        worker = asyncio.create_task(app.arun_worker(burst=True, concurrency=200, **QUICK))
        await until(lambda: now == 200)
        go.set()
        await asyncio.wait_for(worker, 60)
        jobs = await all_jobs(handles)
        assert {(job.state, job.attempt) for job in jobs} == {(State.COMPLETED, 1)}

    asyncio.run(main())
    assert most == 200
