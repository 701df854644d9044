"""Which jobs had begun in a process, as its supervisor reads it after its death."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from uuid import UUID

import pytest

from windlass.core.jobs.job import Job
from windlass.core.jobs.states import State
from windlass.process.exits import begun_jobs as module
from windlass.process.exits.begun_jobs import BegunJobs

PAGE = module._PAGE_BYTES // module._ENTRY_BYTES
"""Number of jobs on a page."""
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LAST = 2**128 - 1


@pytest.fixture
def listed() -> Iterator[BegunJobs]:
    jobs = BegunJobs.create()
    yield jobs
    jobs.close()


def claimed(number: int, token: int = 2**62) -> Job:
    """Return a job as it is claimed under a token."""
    return Job(
        id=UUID(int=number),
        kind="work",
        queue="default",
        priority=0,
        key="",
        state=State.RUNNING,
        payload=b"{}",
        due_at=NOON,
        created_at=NOON,
        token=token,
    )


def begun(listed: BegunJobs, *numbers: int) -> set[int]:
    return {job.int for job in listed.among(map(claimed, numbers))}


def add(listed: BegunJobs, numbers: Iterable[int]) -> None:
    for number in numbers:
        listed.add(claimed(number))


def test_jobs_that_began_in_one_process_are_read_in_another(listed: BegunJobs) -> None:
    writer = BegunJobs(listed.fd)
    assert begun(listed, 7, 8, LAST) == set()
    add(writer, (7, LAST))
    assert begun(listed, 7, 8, LAST) == {7, LAST}


def test_a_job_that_began_in_an_earlier_claim_has_not_begun_in_the_next(listed: BegunJobs) -> None:
    listed.add(claimed(7, token=1))
    assert listed.among([claimed(7, token=2)]) == set()
    listed.add(claimed(7, token=2))
    assert listed.among([claimed(7, token=2)]) == {UUID(int=7)}


def test_a_job_that_is_not_settled_stays_listed_however_many_begin_after_it(
    listed: BegunJobs,
) -> None:
    listed.live = lambda: (claimed(1),)
    for job in range(1, 5 * PAGE):
        listed.add(claimed(job))
        if job % 1_000 == 0:
            assert begun(listed, 1, job) == {1, job}


def test_jobs_that_are_settled_are_forgotten(listed: BegunJobs) -> None:
    add(listed, range(1, PAGE + 2))
    assert begun(listed, *range(1, PAGE + 3)) == {PAGE + 1}


def test_more_jobs_than_can_be_listed_are_unknown_until_they_are_fewer(listed: BegunJobs) -> None:
    live = [claimed(number) for number in range(1, PAGE)]
    listed.live = lambda: live
    add(listed, range(1, PAGE + 2))
    assert begun(listed, 2 * PAGE) == {2 * PAGE}, "a job that may have begun counts as begun"
    live = live[:2]
    add(listed, range(1, PAGE + 1))
    assert begun(listed, 1, 2, 2 * PAGE) == {1, 2}
