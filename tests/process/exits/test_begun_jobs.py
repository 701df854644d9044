"""Which jobs had begun in a process, as its supervisor reads it after its death."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from windlass.process.exits import begun_jobs as module
from windlass.process.exits.begun_jobs import BegunJobs

PAGE = module._PAGE_BYTES // module._ID_BYTES
"""Number of ids on a page."""


@pytest.fixture
def listed() -> Iterator[BegunJobs]:
    jobs = BegunJobs.create()
    yield jobs
    jobs.close()


def test_jobs_that_began_in_one_process_are_read_in_another(listed: BegunJobs) -> None:
    writer = BegunJobs(listed.fd)
    assert listed.read() == frozenset()
    for job in (7, 2**128 - 1):
        writer.add(job)
    assert listed.read() == frozenset({7, 2**128 - 1})


def test_a_job_that_is_not_settled_stays_listed_however_many_begin_after_it(
    listed: BegunJobs,
) -> None:
    listed.live = lambda: (1,)
    for job in range(1, 5 * PAGE):
        listed.add(job)
        if job % 1_000 == 0:
            known = listed.read()
            assert known is not None
            assert {1, job} <= known


def test_jobs_that_are_settled_are_forgotten(listed: BegunJobs) -> None:
    for job in range(1, PAGE + 2):
        listed.add(job)
    assert listed.read() == frozenset({PAGE + 1})


def test_more_jobs_than_can_be_listed_are_unknown_until_they_are_fewer(listed: BegunJobs) -> None:
    live = range(1, PAGE)
    listed.live = lambda: live
    for job in range(1, PAGE + 2):
        listed.add(job)
    assert listed.read() is None
    live = range(1, 3)
    for job in range(1, PAGE + 1):
        listed.add(job)
    known = listed.read()
    assert known is not None
    assert {1, 2} <= known
