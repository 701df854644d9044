"""The laws of settling: what becomes of a job after each way in which an attempt can end."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import NoReturn
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.core.jobs.settling import (
    JOB,
    NOW,
    after,
    failed,
    jitters,
    jobs,
    outcomes,
    policies,
    quick,
    settled,
    texts,
)
from windlass.core.errors import (
    PayloadInvalid,
    PayloadTooLarge,
    PermanentError,
    RetryAfter,
    StoreUnavailable,
)
from windlass.core.jobs.job import Job
from windlass.core.jobs.outcomes import (
    Cancelled,
    Crashed,
    Failed,
    Outcome,
    Released,
    Snoozed,
    Succeeded,
    TimedOut,
)
from windlass.core.jobs.retry import Retry
from windlass.core.jobs.settle import Policy
from windlass.core.jobs.states import State, may_move

# -- the table -------------------------------------------------------------------------------------

SPENT = replace(JOB, attempt=4, failures=3)
ALONE = Crashed(cause="alone", reason="died of SIGSEGV")
TOGETHER = Crashed(cause="process", reason="died of SIGSEGV")
LEASE = Crashed(cause="lease", reason="the lease ran out")
HOST = Crashed(cause="host", reason="the lease ran out")
CRASHED_TWICE = replace(JOB, attempt=3, crashes=2)
OWN_LIMIT = replace(JOB, max_retries=0)
MORE_THAN_USUAL = replace(SPENT, max_retries=5)
HALF_MINUTE = timedelta(seconds=30)
AWAY = StoreUnavailable("away")

TABLE = [
    # job, outcome, state, due, failures, crashes, recorded as, part of the reason
    (JOB, Succeeded(result=b"1"), State.COMPLETED, None, 0, 0, None, None),
    (SPENT, Succeeded(), State.COMPLETED, None, 0, 0, None, None),
    (JOB, failed(ValueError("x")), State.SCHEDULED, 0.5, 1, 0, "failed", "failed"),
    (SPENT, failed(ValueError("x")), State.DEAD, None, 1, 0, "failed", "4 failures"),
    (OWN_LIMIT, failed(ValueError("x")), State.DEAD, None, 1, 0, "failed", "1 failure"),
    (MORE_THAN_USUAL, failed(ValueError("x")), State.SCHEDULED, 4.0, 1, 0, "failed", "failed"),
    (CRASHED_TWICE, failed(ValueError("x")), State.SCHEDULED, 0.5, 1, 0, "failed", "failed"),
    (JOB, failed(PermanentError("x")), State.DEAD, None, 1, 0, "failed", "permanent"),
    (MORE_THAN_USUAL, failed(PermanentError("x")), State.DEAD, None, 1, 0, "failed", "permanent"),
    (
        JOB,
        failed(PayloadInvalid("send", "to", "missing")),
        State.DEAD,
        None,
        1,
        0,
        "failed",
        "field 'to': missing",
    ),
    (JOB, failed(PayloadTooLarge("send", 9, 8)), State.DEAD, None, 1, 0, "failed", "9 bytes"),
    (JOB, failed(RetryAfter("9m")), State.SCHEDULED, 540.0, 1, 0, "failed", "failed"),
    (SPENT, failed(RetryAfter("9m")), State.DEAD, None, 1, 0, "failed", "4 failures"),
    (JOB, failed(MemoryError()), State.SCHEDULED, 15.0, 1, 0, "failed", "resource error"),
    (MORE_THAN_USUAL, failed(MemoryError()), State.SCHEDULED, 120.0, 1, 0, "failed", "resource"),
    (SPENT, failed(MemoryError()), State.DEAD, None, 1, 0, "failed", "the last a resource error"),
    (JOB, failed(AWAY), State.SCHEDULED, 2.5, 0, 0, "system error", "system error"),
    (SPENT, failed(AWAY), State.SCHEDULED, 2.5, 0, 0, "system error", "system error"),
    (OWN_LIMIT, failed(AWAY), State.SCHEDULED, 2.5, 0, 0, "system error", "system error"),
    (JOB, failed(asyncio.CancelledError()), State.SCHEDULED, 0.5, 1, 0, "failed", "failed"),
    (JOB, failed(SystemExit(1)), State.SCHEDULED, 0.5, 1, 0, "failed", "failed"),
    (JOB, TimedOut(after=HALF_MINUTE), State.SCHEDULED, 0.5, 1, 0, "timed out", "timed out"),
    (SPENT, TimedOut(after=HALF_MINUTE), State.DEAD, None, 1, 0, "timed out", "4 failures"),
    (JOB, Snoozed(due=HALF_MINUTE), State.SCHEDULED, 30.0, 0, 0, "snoozed", "snoozed"),
    (SPENT, Snoozed(due=HALF_MINUTE), State.SCHEDULED, 30.0, 0, 0, "snoozed", "snoozed"),
    (JOB, Cancelled(reason="moot"), State.CANCELLED, None, 0, 0, "cancelled", "moot"),
    (SPENT, Released(reason="shutdown"), State.PENDING, None, 0, 0, "released", "shutdown"),
    (JOB, ALONE, State.PENDING, None, 0, 1, "crashed", "SIGSEGV"),
    (SPENT, ALONE, State.PENDING, None, 0, 1, "crashed", "SIGSEGV"),
    (CRASHED_TWICE, ALONE, State.DEAD, None, 0, 1, "crashed", "3 times"),
    (CRASHED_TWICE, TOGETHER, State.PENDING, None, 0, 0, "suspected", "SIGSEGV"),
    (JOB, LEASE, State.PENDING, None, 0, 0, "lost", "ran out"),
    (JOB, HOST, State.PENDING, None, 0, 0, "lost with its host", "ran out"),
]


@pytest.mark.parametrize(
    ("job", "outcome", "state", "seconds", "failures", "crashes", "recorded", "reason"),
    TABLE,
    ids=[f"{type(row[1]).__name__}-{row[2]}" for row in TABLE],
)
def test_each_outcome_leads_where_the_table_says(
    job: Job,
    outcome: Outcome,
    state: State,
    seconds: float | None,
    failures: int,
    crashes: int,
    recorded: str | None,
    reason: str | None,
) -> None:
    move = settled(outcome, job=job)
    assert move.state is state
    assert move.due == (None if seconds is None else timedelta(seconds=seconds))
    assert (move.failures, move.crashes) == (failures, crashes)
    assert (move.attempt.outcome if move.attempt else None) == recorded
    assert reason in move.reason if reason and move.reason else move.reason is reason


# -- fence and state -------------------------------------------------------------------------------


@quick
@given(jobs, outcomes, policies, jitters, st.integers(0, 2**64 - 1))
def test_every_transition_carries_the_jobs_id_and_token(
    job: Job, outcome: Outcome, policy: Policy, jitter: float, token: int
) -> None:
    move = settled(outcome, job=replace(job, token=token), policy=policy, jitter=jitter)
    assert (move.id, move.token) == (job.id, token)


@quick
@given(jobs, outcomes, policies, jitters)
def test_every_transition_is_a_legal_move_out_of_running(
    job: Job, outcome: Outcome, policy: Policy, jitter: float
) -> None:
    assert may_move(State.RUNNING, settled(outcome, job=job, policy=policy, jitter=jitter).state)


@quick
@given(jobs, outcomes, policies, jitters)
def test_a_job_has_a_due_time_exactly_when_it_is_scheduled(
    job: Job, outcome: Outcome, policy: Policy, jitter: float
) -> None:
    move = settled(outcome, job=job, policy=policy, jitter=jitter)
    assert (move.due is not None) == (move.state is State.SCHEDULED)


@quick
@given(outcomes)
def test_a_job_without_a_holder_cannot_be_settled(outcome: Outcome) -> None:
    with pytest.raises(ValueError, match="cannot be settled"):
        settled(outcome, job=replace(JOB, state=State.PENDING, token=None))


# -- what is charged (A4, A7, D4) ------------------------------------------------------------------


@quick
@given(jobs, outcomes, policies, jitters)
def test_a_failure_is_charged_when_the_handler_failed_or_timed_out_and_never_else(
    job: Job, outcome: Outcome, policy: Policy, jitter: float
) -> None:
    move = settled(outcome, job=job, policy=policy, jitter=jitter)
    is_systems = isinstance(outcome, Failed) and isinstance(outcome.exception, StoreUnavailable)
    assert move.failures == int(isinstance(outcome, Failed | TimedOut) and not is_systems)
    assert move.crashes == int(isinstance(outcome, Crashed) and outcome.cause == "alone")


@quick
@given(jobs, st.builds(Released, reason=texts) | st.builds(Snoozed, due=st.just(HALF_MINUTE)))
def test_released_and_snoozed_charge_nothing_however_much_was_charged_before(
    job: Job, outcome: Outcome
) -> None:
    move = settled(outcome, job=job)
    assert (move.failures, move.crashes) == (0, 0)
    assert move.state in {State.PENDING, State.SCHEDULED}


@quick
@given(st.lists(outcomes, max_size=60), policies, st.none() | st.integers(0, 5), jitters)
def test_no_life_has_more_failures_or_crashes_than_its_limits_allow(
    life: list[Outcome], policy: Policy, own: int | None, jitter: float
) -> None:
    """However outcomes follow each other: no job runs for ever (A7)."""
    limits = [policy.max_retries if own is None else own]
    limits += [retry.max_retries or 0 for retry in (policy.retry, *policy.retry.on.values())]
    job = replace(JOB, max_retries=own)
    for outcome in life:
        move = settled(outcome, job=job, policy=policy, jitter=jitter)
        job = after(job, move)
        assert job.failures <= max(limits) + 1
        assert job.crashes <= max(policy.max_crashes, 1)
        if move.state not in {State.PENDING, State.SCHEDULED}:
            break


@pytest.mark.parametrize(
    "outcome", [failed(ValueError("x")), failed(RetryAfter(0)), TimedOut(after=HALF_MINUTE)]
)
@quick
@given(max_retries=st.integers(0, 30))
def test_a_handler_that_always_fails_runs_max_retries_plus_one_times(
    outcome: Outcome, max_retries: int
) -> None:
    policy = Policy(retry=Retry(), max_retries=max_retries)
    job, states = JOB, list[State]()
    while not states or states[-1] is State.SCHEDULED:
        move = settled(outcome, job=job, policy=policy)
        states.append(move.state)
        job = after(job, move)
    assert states == [State.SCHEDULED] * max_retries + [State.DEAD]
    assert job.failures == max_retries + 1


@quick
@given(st.integers(1, 10))
def test_a_job_that_always_kills_its_process_is_dead_after_max_crashes(limit: int) -> None:
    policy = Policy(retry=Retry(), max_crashes=limit)
    job, states = JOB, list[State]()
    while not states or states[-1] is State.PENDING:
        move = settled(ALONE, job=job, policy=policy)
        states.append(move.state)
        job = after(job, move)
    assert states == [State.PENDING] * (limit - 1) + [State.DEAD]


@quick
@given(st.integers(0, 10_000), st.integers(1, 10_000))
def test_the_wait_grows_with_failures_and_not_with_claims(failures: int, attempt: int) -> None:
    job = replace(JOB, failures=failures, attempt=attempt, max_retries=20_000)
    move = settled(failed(ValueError()), job=job)
    assert move.due == timedelta(seconds=min(2**failures, 300)) / 2


# -- the kinds of failure (B7) ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        PermanentError("gone"),
        PayloadInvalid("send", "to", "missing"),
        PayloadTooLarge("send", 9, 8),
    ],
    ids=lambda error: type(error).__name__,
)
@quick
@given(job=jobs, policy=policies)
def test_permanent_errors_and_bad_payloads_are_dead_at_once(
    error: Exception, job: Job, policy: Policy
) -> None:
    assert settled(failed(error), job=job, policy=policy).state is State.DEAD


@pytest.mark.parametrize("due", [timedelta(minutes=9), NOW + timedelta(days=400)])
def test_retry_after_waits_as_the_handler_said_whatever_the_policy_and_jitter(
    due: timedelta | datetime,
) -> None:
    move = settled(failed(RetryAfter(due)), policy=Policy(retry=Retry.network()), jitter=0.9)
    assert (move.due, move.failures) == (due, 1)


def test_a_timeout_is_governed_by_the_policy_for_timeout_errors() -> None:
    policy = Policy(retry=Retry(max_retries=9, on={TimeoutError: Retry.never()}))
    assert settled(TimedOut(after=HALF_MINUTE), policy=policy).state is State.DEAD
    assert settled(failed(ValueError()), policy=policy).state is State.SCHEDULED


def test_a_timeout_says_how_long_it_waited() -> None:
    error = settled(TimedOut(after=timedelta(minutes=1, seconds=30))).error
    assert error is not None
    assert str(error) == "TimeoutError: no result within 1m30s"


def test_the_wait_is_that_of_the_policy_that_governs_the_error() -> None:
    policy = Policy(retry=Retry(on={OSError: Retry(initial="40s")}))
    assert settled(failed(ConnectionError()), policy=policy).due == timedelta(seconds=20)
    assert settled(failed(ValueError()), policy=policy).due == timedelta(seconds=0.5)


def test_a_veto_that_breaks_is_not_hidden() -> None:
    """`when` is the user's code; the core cannot log, so whoever settles must learn of it."""

    def broken(_: BaseException) -> NoReturn:
        raise KeyError("status")

    with pytest.raises(KeyError, match="status"):
        settled(failed(ValueError("bad")), policy=Policy(retry=Retry(when=broken)))


@quick
@given(jobs, outcomes, policies, jitters)
def test_settling_is_pure(job: Job, outcome: Outcome, policy: Policy, jitter: float) -> None:
    first = settled(outcome, job=job, policy=policy, jitter=jitter)
    assert settled(outcome, job=job, policy=policy, jitter=jitter) == first
    assert isinstance(first.id, UUID)
