"""Processes that the kernel kills for want of memory: what it was is on record, for all to see."""

from __future__ import annotations

import os
import signal
from uuid import UUID

import pytest

from tests.support.worker_processes import Yard, until
from tests.torture.programs.families import alive
from windlass import State

pytestmark = pytest.mark.long


def begun_again(yard: Yard, job: UUID, times: int) -> int:
    """Wait until a job has begun so many times, and return the process it runs in now."""
    runs = until(
        lambda: len(found := yard.ledger.entries("start", job)) >= times and found,
        f"run {times} of {job}",
    )
    assert runs
    return runs[-1].pid


def test_a_child_that_the_kernel_kills_is_charged_to_its_job_with_the_signal(yard: Yard) -> None:
    """Case 6. Prevents a job that eats all memory from being tried for ever, or without a word."""
    worker = yard.worker(app="killers:app", isolated_processes=1)
    worker.started()
    job = yard.enqueue("wait", gate="never")
    for times in (1, 2, 3):
        os.kill(begun_again(yard, job, times), signal.SIGKILL)
    dead = yard.settled(job)

    assert (dead.state, dead.crashes, dead.failures) == (State.DEAD, 3, 0)
    assert [attempt.outcome for attempt in dead.history] == ["crashed"] * 3
    told = yard.windlass("jobs", "show", job)
    assert told.count("died of SIGKILL") >= 3
    assert "memory" in told
    assert "killed its process 3 times" in told
    assert yard.settled(yard.enqueue("neighbour")).result == str(worker.pid).encode()


def test_each_job_of_a_worker_killed_by_the_kernel_names_the_reason(yard: Yard) -> None:
    """Case 6. Prevents a guess: whoever looks at the job sees what ended its process, and when."""
    fleet = yard.fleet(lease="30s")
    jobs = yard.enqueue_many("wait", 2, gate="never", attempts=1)
    pids = {yard.begun(job) for job in jobs}
    (pid,) = pids
    os.kill(pid, signal.SIGKILL)
    done = [yard.settled(job) for job in jobs]

    assert {(job.state, job.failures, job.crashes) for job in done} == {(State.COMPLETED, 0, 0)}
    assert not alive(pid)
    assert "SIGKILL" in fleet.event("process.ended", pid=pid)["how"]
    for job in jobs:
        told = yard.windlass("jobs", "show", job)
        assert "1. suspected" in told
        assert "died of SIGKILL" in told
        assert "job.started" in told, "the last lines that it logged"
