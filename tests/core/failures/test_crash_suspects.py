"""Who is suspected of having killed its process, who is charged, and who is cleared (X6)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from windlass.core.failures.crash_suspects import is_suspect
from windlass.core.failures.describe import describe
from windlass.core.jobs.job import Job
from windlass.core.jobs.outcomes import (
    Cancelled,
    Crashed,
    Failed,
    Outcome,
    Released,
    Snoozed,
    TimedOut,
)
from windlass.core.jobs.retry import Retry
from windlass.core.jobs.settle import Policy, Transition, settle
from windlass.core.jobs.states import State

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = Policy(retry=Retry(max_retries=100), max_crashes=3)
JOB = Job(
    id=UUID(int=7), kind="resize", queue="default", priority=0, key="", state=State.RUNNING,
    payload=b"{}", due_at=NOW, created_at=NOW, started_at=NOW, attempt=1, worker="w:1", token=1,
)  # fmt: skip
ALONE = Crashed(cause="alone", reason="died of SIGSEGV", log="last words")
PROCESS = Crashed(cause="process", reason="died of SIGSEGV")
WAITED = Crashed(cause="waited", reason="died of SIGSEGV before the job began")
LEASE = Crashed(cause="lease", reason="the lease ran out")
HOST = Crashed(cause="host", reason="the lease ran out")
RELEASED = Released(reason="shutdown")
SNOOZED = Snoozed(due=timedelta(seconds=1))
TIMED_OUT = TimedOut(after=timedelta(seconds=1))
FAILED = Failed(exception=ValueError("bad"), error=describe(ValueError("bad")))


def lived(*outcomes: Outcome) -> tuple[Job, Transition]:
    """Return a job after some runs, as it is claimed next, and its last move."""
    job = JOB
    for outcome in outcomes:
        move = settle(job, outcome, POLICY, now=NOW, jitter=0)
        assert move.attempt is not None
        job = replace(
            job,
            attempt=job.attempt + 1,
            failures=job.failures + move.failures,
            crashes=job.crashes + move.crashes,
            history=(*job.history, move.attempt),
        )
    return job, move


@pytest.mark.parametrize(
    ("life", "suspect", "crashes"),
    [
        ([PROCESS], True, 0),
        ([PROCESS, RELEASED], True, 0),
        ([PROCESS, SNOOZED, RELEASED], True, 0),
        ([PROCESS, FAILED], False, 0),
        ([PROCESS, TIMED_OUT], False, 0),
        ([PROCESS, PROCESS], True, 0),
        ([PROCESS] * 4, True, 0),
        ([PROCESS] * 5, True, 1),
        ([PROCESS, PROCESS, PROCESS, FAILED, PROCESS, PROCESS], True, 0),
        ([PROCESS, ALONE], True, 1),
        ([PROCESS, ALONE, FAILED], False, 1),
        ([ALONE], True, 1),
        ([LEASE], False, 0),
        ([LEASE, LEASE], True, 0),
        ([LEASE, FAILED, LEASE], True, 0),
        ([LEASE, LEASE, LEASE], True, 0),
        ([LEASE, LEASE, LEASE, LEASE], True, 1),
        ([PROCESS, LEASE], True, 0),
        ([PROCESS, LEASE, LEASE], True, 1),
        ([LEASE, LEASE, FAILED, LEASE], False, 0),
        ([HOST], False, 0),
        ([HOST, HOST], False, 0),
        ([HOST, LEASE], False, 0),
        ([HOST, HOST, HOST], True, 0),
        ([PROCESS, HOST], True, 0),
        ([PROCESS, HOST, HOST, HOST], True, 1),
        ([WAITED], False, 0),
        ([WAITED, WAITED], True, 0),
        ([WAITED, FAILED, WAITED], False, 0),
        ([WAITED, RELEASED, WAITED], True, 0),
        ([WAITED, PROCESS], True, 0),
        ([WAITED, LEASE], False, 0),
        ([LEASE, WAITED], False, 0),
        ([PROCESS, WAITED], True, 0),
        ([PROCESS, WAITED, LEASE], True, 0),
        ([PROCESS, WAITED, WAITED], True, 0),
        ([WAITED] * 9, True, 0),
        ([WAITED] * 10, True, 1),
        ([FAILED], False, 0),
    ],
    ids=lambda value: (
        "-".join(getattr(each, "cause", type(each).__name__) for each in value)
        if isinstance(value, list)
        else None
    ),
)
def test_a_crashed_job_follows_the_table_of_lives(
    life: list[Outcome], suspect: bool, crashes: int
) -> None:
    job, _ = lived(*life)
    assert (is_suspect(job), job.crashes) == (suspect, crashes)


def test_neighbours_of_a_crashed_job_run_again_at_once_uncharged() -> None:
    _, move = lived(PROCESS)
    assert (move.state, move.due, move.failures, move.crashes) == (State.PENDING, None, 0, 0)


def test_the_guilty_is_dead_after_max_crashes_with_its_signal_and_last_lines() -> None:
    _, move = lived(PROCESS, ALONE, ALONE, ALONE)
    assert move.state is State.DEAD
    assert move.reason == "killed its process 3 times: died of SIGSEGV"
    assert move.error is not None
    assert (move.error.type, move.error.traceback) == ("Crashed", "last words")


@given(
    st.lists(st.sampled_from([PROCESS, ALONE, WAITED, LEASE, HOST, RELEASED, FAILED]), max_size=40)
)
def test_only_a_job_that_ran_alone_is_charged(life: list[Outcome]) -> None:
    job = JOB
    for outcome in life:
        alone = is_suspect(job) or outcome is ALONE
        move = settle(job, outcome, POLICY, now=NOW, jitter=0)
        assert alone or not move.crashes
        if move.attempt is None or move.state is State.DEAD:
            break
        job = replace(job, crashes=job.crashes + move.crashes, history=(*job.history, move.attempt))


@pytest.mark.parametrize("cause", ["lease", "host", "process", "waited", "alone"])
def test_a_job_that_takes_everything_down_with_it_every_time_dies_in_the_end(cause: str) -> None:
    """A7: a job that always kills its process, or its host, is never run for ever."""
    job = JOB
    for _ in range(100):
        move = settle(job, Crashed(cause=cause, reason="x"), POLICY, now=NOW, jitter=0)  # type: ignore[arg-type]
        if move.state is State.DEAD:
            return
        assert move.attempt is not None
        job = replace(job, crashes=job.crashes + move.crashes, history=(*job.history, move.attempt))
    pytest.fail("it runs for ever")


def test_a_cancelled_suspect_stays_cancelled() -> None:
    job, _ = lived(PROCESS)
    move = settle(job, Cancelled(reason="moot"), POLICY, now=NOW, jitter=0)
    assert move.state is State.CANCELLED
