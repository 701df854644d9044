"""Workers that are told to end: they always do, and no job is lost, charged or run twice."""

from __future__ import annotations

import signal
import time
from collections import Counter

import pytest

from tests.support.worker_processes import NOISE, WorkerProcess, Yard, until
from windlass import State
from windlass.core.jobs.job import Job

GRACE = 1.0


def assert_given_back(job: Job) -> None:
    """Assert that a job waits again as if nobody had touched it."""
    assert (job.state, job.failures, job.crashes) == (State.PENDING, 0, 0)
    assert (job.worker, job.token) == (None, None)
    assert [attempt.outcome for attempt in job.history] == ["released"]


@pytest.mark.parametrize("kind", ["wait", "wait_in_thread"])
def test_a_stopping_worker_lets_its_job_finish(yard: Yard, kind: str) -> None:
    """Case 15. Prevents deployments that cut jobs short; the exit code says that all is well."""
    worker = yard.worker()
    worker.started()
    job = yard.enqueue(kind, gate="late")
    yard.begun(job)

    worker.send(signal.SIGTERM)
    worker.event("worker.draining", running=1)
    waiting = yard.enqueue("quick")
    yard.open_gate("late")

    assert worker.ended() == 0
    done = yard.job(job)
    assert (done.state, done.attempt, done.failures) == (State.COMPLETED, 1, 0)
    assert len(yard.ledger.entries("end", job)) == 1
    assert yard.job(waiting).attempt == 0
    assert worker.events("worker.stopped")
    assert not [each for each in yard.workers() if each.alive]


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_stopped_twice_gives_its_jobs_back_at_once(
    yard: Yard, number: signal.Signals
) -> None:
    """Case 15. Prevents an impatient operator from having to kill, and jobs from paying for it."""
    worker = yard.worker(shutdown_timeout="10m")
    worker.started()
    jobs = [yard.enqueue(kind, gate="never") for kind in ("wait", "wait_in_thread")]
    for job in jobs:
        yard.begun(job)

    worker.send(number)
    worker.event("worker.draining", running=2)
    worker.send(number)

    assert worker.ended() == 0
    for job in jobs:
        assert_given_back(yard.job(job))


@pytest.mark.long
def test_a_worker_stopped_during_claims_settles_every_job_once(
    yard: Yard,
) -> None:
    """Case 15. Prevents jobs that fall between a claim, or an outcome, and the end of a process.

    What was completed was done once, what was not waits; the next worker does exactly the rest.
    """
    jobs = []
    for _ in range(3):
        # Work for each worker, however much the one before it has done on a fast machine.
        jobs += yard.enqueue_many("quick", 500, pause=0.05)
        done = len(yard.ledger.entries("end"))
        worker = yard.worker()
        until(lambda: len(yard.ledger.entries("end")) > done + 100, "some work")  # noqa: B023
        worker.send(signal.SIGTERM)
        assert worker.ended() == 0
        assert set(yard.states()) <= {State.COMPLETED, State.PENDING}

    _assert_done_once(yard, yard.worker(), {str(job) for job in jobs})


def _assert_done_once(yard: Yard, worker: WorkerProcess, jobs: set[str]) -> None:
    until(lambda: yard.states() == {State.COMPLETED: len(jobs)}, "the rest")
    ends = Counter(entry.job for entry in yard.ledger.entries("end"))
    assert ends == dict.fromkeys(jobs, 1)
    assert yard.charged() == 0
    assert not worker.events("job.rescued")


@pytest.mark.parametrize("kind", ["wait", "wait_in_thread"])
def test_a_job_that_outlasts_the_grace_period_is_given_back_uncharged(
    yard: Yard, kind: str
) -> None:
    """Case 16. Prevents long jobs from being lost, or from dying of too many deployments."""
    worker = yard.worker(shutdown_timeout=f"{GRACE}s")
    worker.started()
    job = yard.enqueue(kind, gate="never")
    yard.begun(job)

    told_at = time.monotonic()
    worker.send(signal.SIGTERM)
    assert worker.ended() == 0

    assert time.monotonic() - told_at > GRACE
    assert_given_back(yard.job(job))
    assert not yard.ledger.entries("end", job)


@pytest.mark.long
def test_a_handler_that_swallows_its_cancellation_does_not_keep_the_process(yard: Yard) -> None:
    """Case 17. Prevents a process that only SIGKILL ends, and a job that goes down with it."""
    worker = yard.worker(shutdown_timeout=f"{GRACE}s")
    worker.started()
    job = yard.enqueue("swallow")
    yard.begun(job)

    worker.send(signal.SIGTERM)
    assert worker.ended(within=GRACE + 5 + NOISE) == 0

    assert yard.ledger.entries("swallowed", job)
    assert worker.events("job.abandoned", job_id=str(job))
    assert_given_back(yard.job(job))


@pytest.mark.long
def test_a_thread_that_a_handler_left_to_the_interpreter_does_not_keep_the_process(
    yard: Yard,
) -> None:
    """Case 17. Prevents `asyncio.to_thread`, for which the loop's end waits, from outliving it."""
    worker = yard.worker(shutdown_timeout=f"{GRACE}s")
    worker.started()
    job = yard.enqueue("leave_a_thread")
    yard.begun(job)

    worker.send(signal.SIGTERM)
    assert worker.ended(within=GRACE + 5 + NOISE) == 0

    assert worker.events("worker.stopped")
    assert not worker.events("worker.stuck")
    assert_given_back(yard.job(job))


@pytest.mark.long
def test_a_handler_that_blocks_the_loop_does_not_keep_the_process(yard: Yard) -> None:
    """Case 17. Prevents a blocked loop, which hears no signal, from outliving the grace period."""
    worker = yard.worker(shutdown_timeout=f"{GRACE}s")
    worker.started()
    job = yard.enqueue("block_loop_for", seconds=600.0)
    yard.begun(job)

    worker.send(signal.SIGTERM)
    assert worker.ended() == 1
    assert worker.events("worker.stuck")
    assert yard.job(job).state is State.RUNNING  # for others to rescue, once the lease is over
