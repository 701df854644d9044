"""A sample for `windlass check` reaches the oldest jobs and every pending kind, on every store."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from tests.support.app_on_store import STORES, Bed
from windlass.app.deploy_check.check import check_deploy
from windlass.app.deploy_check.report import CheckReport
from windlass.app.deploy_check.sample import Sample
from windlass.core.jobs.ids import first_id
from windlass.core.jobs.job import Job, NewJob

pytestmark = pytest.mark.stores(*STORES)
START = datetime(2026, 1, 1, tzinfo=UTC)


def job(minute: int, kind: str = "plain", due: timedelta | None = None) -> NewJob:
    """Return a job that was enqueued in a minute; each differs in its last digits, too."""
    made = first_id(START + timedelta(minutes=minute))
    return NewJob(id=UUID(int=made.int + minute + 1), kind=kind, payload=b"{}", due=due)


def sampled(bed: Bed, jobs: list[NewJob], limit: int | None) -> tuple[Sample, list[Job]]:
    app = bed.app()

    async def main() -> tuple[Sample, list[Job]]:
        await app.store.open()
        await app.store.enqueue(jobs)
        sample = Sample(app.store, limit)
        found = [each async for each in sample.jobs()]
        await app.aclose()
        return sample, found

    return asyncio.run(main())


def test_all_jobs_are_looked_at_where_they_are_few(bed: Bed) -> None:
    jobs = [job(minute) for minute in range(30)]
    sample, found = sampled(bed, jobs, 100)
    assert sample.is_complete
    assert {each.id for each in found} == {each.id for each in jobs}


def test_a_sample_has_new_and_old_jobs_and_no_job_twice(bed: Bed) -> None:
    jobs = [job(minute, due=timedelta(days=minute % 2)) for minute in range(200)]
    sample, found = sampled(bed, jobs, 40)
    assert not sample.is_complete
    assert len({each.id for each in found}) == len(found) <= 40
    minutes = sorted(each.id.int for each in found)
    assert {each.id.int for each in jobs[-20:]} <= set(minutes)
    assert min(minutes) == jobs[0].id.int
    between = [each for each in minutes if jobs[40].id.int < each < jobs[140].id.int]
    assert len(between) >= 5


def test_no_limit_means_all_jobs(bed: Bed) -> None:
    sample, found = sampled(bed, [job(minute) for minute in range(30)], None)
    assert sample.is_complete
    assert len(found) == 30


def test_a_kind_that_a_sample_misses_is_found_if_it_is_pending(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def plain() -> None: ...

    @app.job
    async def rare(size: int) -> None: ...

    kinds = {57: "rare", 58: "gone"}
    jobs = [job(minute, kinds.get(minute, "plain")) for minute in range(200)]

    async def main() -> CheckReport:
        await app.store.open()
        await app.store.enqueue(jobs)
        report = await check_deploy(app, limit=4)
        await app.aclose()
        return report

    report = asyncio.run(main())
    assert not report.complete
    assert report.unfinished == 200
    assert report.looked_at < 10
    assert {(each.subject, each.name) for each in report.findings} == {
        ("kind", "gone"),
        ("payload", "rare"),
    }
