"""One worker is slow and one is fast: the fast one gets the work, and nothing waits in vain."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.torture.harness import Yard, until
from windlass import State
from windlass.core.job import Job, JobFilter

JOBS = 1_500
SLOW = 0.02
PROMPT = 0.05
NOISE = 0.25
"""Seconds by which a noisy machine may be late with a start."""


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
    waits = [
        begun[str(job.id), job.attempt] - job.started_at.timestamp()
        for job in jobs
        if job.started_at is not None
    ]
    assert max(waits) < 10 * NOISE
    assert sum(wait > PROMPT + NOISE for wait in waits) <= 0.01 * JOBS, sorted(waits)[-20:]
    assert not any(job.history for job in jobs), "what never began is no attempt"
    given_back = sum(job.attempt - 1 for job in jobs)
    assert given_back < 0.2 * JOBS, "given back again and again"


def _all(yard: Yard) -> list[Job]:
    which = JobFilter(states=(State.COMPLETED,))
    return list(yard.call(yard.app.store.find(which, limit=JOBS)).jobs)
