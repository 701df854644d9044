"""Which jobs a worker lists as begun for its supervisor, while they are claimed again."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from tests.support.app_on_store import PROMPT, QUICK, Bed
from windlass import Context, Snooze
from windlass.process.exits.begun_jobs import BegunJobs
from windlass.worker.worker import Worker

JOBS = 20


@pytest.mark.parametrize("bed", ["memory"], indirect=True)
def test_a_job_that_began_in_an_earlier_claim_is_not_listed_before_it_begins_again(
    bed: Bed,
) -> None:
    """Prevents suspects that only waited in the process that died, since they once ran in it."""
    app = bed.app()
    begun = BegunJobs.create()
    workers: list[Worker] = []
    waiting: set[UUID] = set()
    listed: set[UUID] = set()

    @app.job
    async def work(ctx: Context) -> Snooze | None:
        if ctx.attempt == 1:
            return Snooze(0)
        held = [run.job for run in workers[0]._state.runs if run.task is None]
        waiting.update(job.id for job in held)
        listed.update(begun.among(held))
        return None

    async def main() -> None:
        await app.aenqueue_many(work.draft() for _ in range(JOBS))
        worker = app.worker(concurrency=JOBS, burst=True, **QUICK)
        worker._state.begun_jobs = begun
        workers.append(worker)
        await asyncio.wait_for(worker.run(), PROMPT)
        await app.aclose()

    asyncio.run(main())
    begun.close()
    assert waiting, "no job waited while another one ran for the second time"
    assert listed == set()
