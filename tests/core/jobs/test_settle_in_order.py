"""An ordered job that is to run again keeps its place."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from tests.core.jobs.settling import JOB, NOW, POLICY
from windlass.core.errors import RetryAfter, StoreUnavailable
from windlass.core.failures.describe import describe
from windlass.core.jobs.outcomes import (
    Cancelled,
    Failed,
    Outcome,
    Released,
    Snoozed,
    Succeeded,
    TimedOut,
)
from windlass.core.jobs.retry import Retry
from windlass.core.jobs.settle import Policy, settle
from windlass.core.jobs.states import State

# -- strict order ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "outcome",
    [
        Failed(exception=ValueError("no"), error=describe(ValueError("no"))),
        Failed(exception=RetryAfter("5s"), error=describe(RetryAfter("5s"))),
        Failed(exception=StoreUnavailable("no"), error=describe(StoreUnavailable("no"))),
        TimedOut(after=timedelta(seconds=1)),
        Snoozed(due=timedelta(seconds=5)),
        Snoozed(due=NOW + timedelta(seconds=5), begun=False),
    ],
)
def test_an_ordered_job_that_is_to_run_again_keeps_its_place_and_is_waited_for(
    outcome: Outcome,
) -> None:
    usual = settle(JOB, outcome, POLICY, now=NOW, jitter=0.5)
    assert (usual.state, usual.hold) == (State.SCHEDULED, None)
    move = settle(JOB, outcome, Policy(retry=Retry(), ordered=True), now=NOW, jitter=0.5)
    assert (move.state, move.due, move.hold) == (State.PENDING, None, usual.due)
    again = None if usual.due is None else _instant(usual.due)
    assert (None if move.attempt is None else move.attempt.retry_at) in (again, None)
    assert (move.attempt is None) is (usual.attempt is None)
    plain = None if move.attempt is None else replace(move.attempt, retry_at=None)
    assert replace(move, state=usual.state, due=usual.due, hold=None, attempt=plain) == usual


def _instant(due: timedelta | datetime) -> datetime:
    return NOW + due if isinstance(due, timedelta) else due


def test_when_an_ordered_job_is_retried_is_in_its_last_attempt() -> None:
    """It is pending all the while, so that its due time does not tell."""
    outcome = Failed(exception=RetryAfter("5s"), error=describe(RetryAfter("5s")))
    move = settle(JOB, outcome, Policy(retry=Retry(), ordered=True), now=NOW, jitter=0.5)
    assert move.attempt is not None
    assert move.attempt.retry_at == NOW + timedelta(seconds=5)


@pytest.mark.parametrize(
    "outcome", [Succeeded(), Cancelled(reason="moot"), Released(reason="shutdown")]
)
def test_an_ordered_job_that_is_not_to_run_later_is_settled_like_any_other(
    outcome: Outcome,
) -> None:
    ordered = Policy(retry=Retry(), ordered=True)
    assert settle(JOB, outcome, ordered, now=NOW, jitter=0) == settle(
        JOB, outcome, POLICY, now=NOW, jitter=0
    )
