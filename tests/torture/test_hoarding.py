"""One worker is slow and one is fast: the fast one gets the work, and nothing waits in vain."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.worker_processes import Yard, until
from windlass import State
from windlass.core.jobs.job import Job
from windlass.core.jobs.queries import JobFilter

JOBS = 1_500
SLOW = 0.02
MOST_IN_HAND = 25
"""A worker that claims as many as it has slots has a hundred; one that keeps its pace, three."""


@pytest.mark.long
def test_a_fast_worker_gets_the_work_that_a_slow_one_cannot_begin(yard: Yard) -> None:
    """Prevents a slow worker from sitting on a batch of a hundred while others have nothing."""
    slow = yard.worker(environ={"TORTURE_LABOUR": str(SLOW)})
    fast = yard.worker()
    names = {slow.started(): "slow", fast.started(): "fast"}
    yard.enqueue_many("labour", JOBS)
    until(lambda: yard.states() == {State.COMPLETED: JOBS}, "an empty queue")

    jobs = _all(yard)
    done = Counter(names[job.worker or ""] for job in jobs)
    assert done["slow"] > 0
    assert done["fast"] > 0.7 * JOBS, done
    assert yard.charged() == 0
    # No job was in hands that could not begin with it: it had begun soon, or was given back.
    begun = {(entry.job, entry.attempt): entry.at for entry in yard.ledger.entries("start")}
    assert len(begun) == JOBS, "what was given back had begun"
    held = [
        (job.started_at.timestamp(), begun[str(job.id), job.attempt])
        for job in jobs
        if job.started_at is not None and names[job.worker or ""] == "slow"
    ]
    in_hand = max(sum(claimed <= at < start for claimed, start in held) for _, at in held)
    assert in_hand <= MOST_IN_HAND, "claimed by the slow worker and not begun, at one time"
    assert not any(job.history for job in jobs), "what never began is no attempt"
    given_back = sum(job.attempt - 1 for job in jobs)
    assert given_back < 0.2 * JOBS, "given back again and again"


def _all(yard: Yard) -> list[Job]:
    which = JobFilter(states=(State.COMPLETED,))
    return list(yard.call(yard.app.store.find(which, limit=JOBS)).jobs)
