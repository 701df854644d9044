"""What is recorded of an attempt: its number, its error, its reason, all bounded and storable."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from msgspec.structs import replace

from tests.core.jobs.settling import JOB, NOW, failed, jobs, outcomes, policies, quick, settled
from windlass.core.errors import PayloadInvalid
from windlass.core.failures.error_classes import ErrorClass
from windlass.core.failures.fingerprint import fingerprint
from windlass.core.jobs.job import Job
from windlass.core.jobs.outcomes import Cancelled, Outcome, Released, Succeeded
from windlass.core.jobs.settle import Policy
from windlass.core.jobs.states import State

REASON_LIMIT = 100_000


# -- what is remembered (C13) ----------------------------------------------------------------------


@quick
@given(jobs, outcomes, policies)
def test_an_attempt_that_did_not_complete_the_job_is_recorded_with_number_and_worker(
    job: Job, outcome: Outcome, policy: Policy
) -> None:
    attempt = settled(outcome, job=job, policy=policy).attempt
    assert (attempt is None) == isinstance(outcome, Succeeded)
    if attempt is not None:
        assert (attempt.number, attempt.worker) == (job.attempt, job.worker)
        assert attempt.started_at == job.started_at


@pytest.mark.parametrize(
    ("started", "lasted"),
    [
        (NOW - timedelta(seconds=7), timedelta(seconds=7)),
        (NOW, timedelta(0)),
        (NOW + timedelta(hours=1), timedelta(0)),
        (None, timedelta(0)),
    ],
)
def test_an_attempt_never_lasts_less_than_nothing(
    started: datetime | None, lasted: timedelta
) -> None:
    attempt = settled(Released(reason="x"), job=replace(JOB, started_at=started)).attempt
    assert attempt is not None
    assert attempt.duration == lasted


@quick
@given(jobs, policies)
def test_the_error_is_kept_with_the_job_and_with_its_attempt(job: Job, policy: Policy) -> None:
    outcome = failed(ValueError("bad"))
    move = settled(outcome, job=job, policy=policy)
    marked = replace(outcome.error, error_class=ErrorClass.TRANSIENT)
    assert move.error == replace(marked, fingerprint=fingerprint(job.kind, marked))
    assert move.attempt is not None
    assert move.attempt.error == move.error


@quick
@given(jobs, outcomes, policies)
def test_every_job_that_goes_dead_or_cancelled_says_why(
    job: Job, outcome: Outcome, policy: Policy
) -> None:
    move = settled(outcome, job=job, policy=policy)
    if move.state is State.DEAD:
        assert move.reason
        assert move.error is not None
    if move.state is State.CANCELLED:
        assert move.reason is not None


def test_a_result_is_kept_as_it_is() -> None:
    assert settled(Succeeded(result=b'{"a":1}')).result == b'{"a":1}'


class Unspeakable(PayloadInvalid):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "outcome",
    [
        failed(PayloadInvalid("send", "x\x00y", "unknown field `x\x00y`")),
        failed(PayloadInvalid("send", "to", "lone \ud800")),
        failed(PayloadInvalid("send", "to", "x" * 1_000_000)),
        failed(Unspeakable("send", "to", "missing")),
        Cancelled(reason="nul \x00"),
        Cancelled(reason="lone \ud800"),
        Cancelled(reason="x" * 1_000_000),
    ],
    ids=["nul", "surrogate", "long", "unspeakable", "moot nul", "moot surrogate", "moot long"],
)
def test_every_reason_can_be_stored_and_is_bounded(outcome: Outcome) -> None:
    """A reason that no store can hold would leave the job running for ever (torture 38)."""
    reason = settled(outcome).reason
    assert reason
    assert "\x00" not in reason
    reason.encode()
    assert len(reason) <= REASON_LIMIT
