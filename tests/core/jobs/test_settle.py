"""The laws of settling: what becomes of a job after each way in which an attempt can end."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import NoReturn
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from windlass.core.errors import (
    PayloadInvalid,
    PayloadTooLarge,
    PermanentError,
    RetryAfter,
    StoreUnavailable,
)
from windlass.core.failures.describe import describe
from windlass.core.failures.error_classes import ErrorClass
from windlass.core.failures.fingerprint import fingerprint
from windlass.core.jobs.ids import job_id
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
from windlass.core.jobs.settle import Policy, Transition, settle
from windlass.core.jobs.states import State, may_move

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TOKEN = 0x5EED_5EED_5EED_5EED
JOB = Job(
    id=job_id(0, 0),
    kind="send",
    queue="mail",
    priority=0,
    key="",
    state=State.RUNNING,
    payload=b"{}",
    due_at=NOW - timedelta(minutes=1),
    created_at=NOW - timedelta(minutes=1),
    started_at=NOW - timedelta(seconds=7),
    attempt=1,
    worker="worker-1",
    token=TOKEN,
)
POLICY = Policy(retry=Retry())
REASON_LIMIT = 100_000
quick = settings(max_examples=40)


def failed(error: BaseException) -> Failed:
    return Failed(exception=error, error=describe(error))


def settled(
    outcome: Outcome, *, job: Job = JOB, policy: Policy = POLICY, jitter: float = 0.0
) -> Transition:
    return settle(job, outcome, policy, now=NOW, jitter=jitter)


def after(job: Job, move: Transition) -> Job:
    """Return the job as the store holds it once it is claimed again after this transition."""
    return replace(
        job,
        attempt=job.attempt + 1,
        failures=job.failures + move.failures,
        crashes=job.crashes + move.crashes,
        history=job.history if move.attempt is None else (*job.history, move.attempt),
    )


texts = st.text(max_size=20)
outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(Succeeded, result=st.none() | st.binary(max_size=5)),
    st.builds(
        failed,
        st.sampled_from(
            [
                ValueError("bad"),
                ConnectionError("refused"),
                PermanentError("gone"),
                PayloadInvalid("send", "to", "missing"),
                RetryAfter("9m"),
                RetryAfter(NOW + timedelta(days=1)),
                StoreUnavailable("away"),
                MemoryError(),
                ExceptionGroup("several", [ValueError("bad"), MemoryError()]),
                asyncio.CancelledError(),
                KeyboardInterrupt(),
                SystemExit(1),
            ]
        ),
    ),
    st.builds(TimedOut, after=st.timedeltas(timedelta(0), timedelta(days=1))),
    st.builds(Snoozed, due=st.timedeltas(timedelta(0), timedelta(days=1)) | st.just(NOW)),
    st.builds(Cancelled, reason=texts),
    st.builds(Released, reason=texts),
    st.builds(Crashed, cause=st.sampled_from(["alone", "process", "lease", "host"]), reason=texts),
)
retries = st.sampled_from(
    [
        Retry(),
        Retry.network(),
        Retry.never(),
        Retry(on={ConnectionError: Retry.rate_limit(), TimeoutError: Retry.never()}),
        Retry(when=lambda error: not isinstance(error, ValueError)),
    ]
)
policies = st.builds(
    Policy, retry=retries, max_retries=st.integers(0, 5), max_crashes=st.integers(0, 5)
)
jobs = st.builds(
    lambda attempt, failures, crashes, own, started, cancel: replace(
        JOB,
        attempt=attempt,
        failures=failures,
        crashes=crashes,
        max_retries=own,
        started_at=started,
        cancel_requested=cancel,
    ),
    st.integers(1, 10_000),
    st.integers(0, 10_000),
    st.integers(0, 10),
    st.none() | st.integers(0, 10_000),
    st.none() | st.just(NOW) | st.just(NOW + timedelta(seconds=5)),
    st.booleans(),
)
jitters = st.floats(0, 1, exclude_max=True)


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


# -- the classes of errors (D9) --------------------------------------------------------------------


class Down(Exception):
    pass


def classes(error_class: ErrorClass) -> Policy:
    return Policy(retry=Retry(), app_errors={Down: error_class})


@pytest.mark.parametrize(
    ("error_class", "state", "failures"),
    [
        (ErrorClass.TRANSIENT, State.SCHEDULED, 1),
        (ErrorClass.PERMANENT, State.DEAD, 1),
        (ErrorClass.SYSTEM, State.SCHEDULED, 0),
        (ErrorClass.RESOURCE, State.SCHEDULED, 1),
    ],
)
def test_the_class_of_an_error_decides_and_is_kept_with_the_job_and_its_attempt(
    error_class: ErrorClass, state: State, failures: int
) -> None:
    move = settled(failed(Down()), policy=classes(error_class))
    assert (move.state, move.failures) == (state, failures)
    assert move.error is not None
    assert move.error.error_class is error_class
    assert move.attempt is not None
    assert move.attempt.error == move.error


@quick
@given(st.integers(1, 200), jitters)
def test_a_system_error_waits_longer_the_longer_the_system_is_down(n: int, jitter: float) -> None:
    job = JOB
    for _ in range(n):
        move = settled(failed(AWAY), job=job, jitter=jitter)
        assert (move.state, move.failures) == (State.SCHEDULED, 0)
        assert move.attempt is not None
        job = replace(after(job, move), history=(*job.history, move.attempt)[-100:])
    assert move.due == timedelta(seconds=min(5 * 2 ** (n - 1), 300)) * (0.5 + jitter / 2)
    assert (job.failures, job.attempt) == (0, n + 1)


def test_a_system_that_was_back_in_between_is_waited_for_from_the_start() -> None:
    outage = [settled(failed(AWAY)).attempt, settled(failed(AWAY)).attempt]
    between = settled(failed(ValueError())).attempt
    history = tuple(each for each in (*outage, between) if each is not None)
    move = settled(failed(AWAY), job=replace(JOB, history=history))
    assert move.due == timedelta(seconds=2.5)


def test_neither_a_limit_nor_a_veto_is_asked_about_a_system_error() -> None:
    policy = Policy(retry=Retry(max_retries=0, when=lambda error: False), max_retries=0)
    assert settled(failed(AWAY), policy=policy).state is State.SCHEDULED


@pytest.mark.parametrize("error_class", ErrorClass)
def test_a_timeout_of_the_job_is_charged_whatever_timeout_errors_are(
    error_class: ErrorClass,
) -> None:
    """Prevents: a handler that always hangs is a system error, and is run for ever."""
    policy = Policy(retry=Retry(), app_errors={TimeoutError: error_class})
    move = settled(TimedOut(after=HALF_MINUTE), policy=policy)
    assert (move.state, move.failures) == (State.SCHEDULED, 1)
    assert move.error is not None
    assert move.error.error_class is ErrorClass.TRANSIENT


@pytest.mark.parametrize(("base", "wait"), [("1s", 15.0), ("10m", 300.0), ("40s", 20.0)])
def test_a_resource_error_never_waits_less_than_its_policy_says(base: str, wait: float) -> None:
    policy = Policy(retry=Retry(initial=base))
    assert settled(failed(MemoryError()), policy=policy).due == timedelta(seconds=wait)


def test_a_policy_for_the_exception_goes_before_the_classes_of_the_app() -> None:
    policy = Policy(
        retry=Retry(on={Down: Retry(initial="8s")}), app_errors={Down: ErrorClass.SYSTEM}
    )
    move = settled(failed(Down()), policy=policy)
    assert (move.due, move.failures) == (timedelta(seconds=4), 1)


def test_between_a_policy_and_a_class_of_the_kind_the_nearest_base_class_decides() -> None:
    retry = Retry(on={OSError: Retry.network()})
    nearer = Policy(retry=retry, errors={ConnectionError: ErrorClass.SYSTEM})
    farther = Policy(retry=retry, errors={Exception: ErrorClass.SYSTEM})
    refused = failed(ConnectionRefusedError())
    assert settled(refused, policy=nearer).failures == 0
    assert settled(refused, policy=farther).failures == 1


def test_the_classes_of_the_kind_go_before_those_of_the_app() -> None:
    policy = Policy(
        retry=Retry(),
        errors={Exception: ErrorClass.TRANSIENT},
        app_errors={Down: ErrorClass.PERMANENT},
    )
    assert settled(failed(Down()), policy=policy).state is State.SCHEDULED


def test_without_functions_a_policy_keeps_what_is_written_in_its_tables() -> None:
    def broken(_: BaseException) -> NoReturn:
        raise KeyError("status")

    policy = Policy(
        retry=Retry(when=broken),
        errors={ValueError: broken},
        app_errors={OSError: broken, Down: ErrorClass.PERMANENT},
    )
    with pytest.raises(KeyError, match="status"):
        settled(failed(OSError()), policy=policy)
    tolerant = policy.without_functions()
    assert settled(failed(ValueError()), policy=tolerant).state is State.SCHEDULED
    assert settled(failed(OSError()), policy=tolerant).state is State.SCHEDULED
    assert settled(failed(Down()), policy=tolerant).state is State.DEAD


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


@quick
@given(jobs, outcomes, policies, jitters)
def test_settling_is_pure(job: Job, outcome: Outcome, policy: Policy, jitter: float) -> None:
    first = settled(outcome, job=job, policy=policy, jitter=jitter)
    assert settled(outcome, job=job, policy=policy, jitter=jitter) == first
    assert isinstance(first.id, UUID)


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
