"""Owns the decision about a job after an attempt: `settle(job, outcome, policy)`."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import takewhile
from uuid import UUID

from msgspec import Struct, field
from msgspec.structs import replace

from windlass.core.errors import PayloadError, RetryAfter
from windlass.core.failures.crash_suspects import (
    ALONE,
    CRASHED,
    LOST,
    LOST_WITH_HOST,
    NOT_BEGUN,
    SUSPECTED,
    is_lost_too_often,
    is_not_begun_too_often,
    is_suspect,
    is_suspected_too_often,
)
from windlass.core.failures.describe import describe
from windlass.core.failures.error_classes import Classes, ErrorClass, class_of, without_functions
from windlass.core.failures.exceptions import is_a
from windlass.core.failures.fingerprint import fingerprint
from windlass.core.jobs.job import Attempt, ErrorInfo, Job, Saga
from windlass.core.jobs.outcomes import (
    Asleep,
    Cancelled,
    Compensated,
    Crashed,
    Failed,
    Outcome,
    Released,
    Snoozed,
    Succeeded,
    TimedOut,
)
from windlass.core.jobs.retry import Backoff, Retry
from windlass.core.jobs.states import State
from windlass.core.schedules.clock_step import reason_of
from windlass.core.values.durations import When, human
from windlass.core.values.text import storable
from windlass.core.workflows.compensation import (
    UNDO_RETRIES,
    after_undo,
    all_undone,
    as_undo,
    undoing_first,
)
from windlass.core.workflows.step_log import Steps

_COMPLETED = State.COMPLETED  # A module-level name, since a lookup on an enum is slow.
_REASON_LIMIT = 1_000
_NOT_RUNNING = "job {0.id} is {0.state}, so it cannot be settled"
_LOG_UNREADABLE = "its remaining undos are unknown, because the log of its steps cannot be read"
_SYSTEM_ERROR = "system error"
_SYSTEM_BACKOFF = Backoff(base=timedelta(seconds=5))
_RESOURCE_BACKOFF = Backoff(base=timedelta(seconds=30))


class Policy(Struct, frozen=True, kw_only=True):
    """The limits on the tries of one job, and which errors count as tries.

    `errors` is the kind's own table of error classes, `app_errors` the one that all kinds share. A
    kind is `ordered` if none of its jobs may overtake another one of the same key.
    """

    retry: Retry
    max_retries: int = 3
    max_crashes: int = 3
    errors: Classes = field(default_factory=dict)
    app_errors: Classes = field(default_factory=dict)
    ordered: bool = False
    undo: Retry = field(default_factory=Retry)
    """The retry policy of the undo that runs now."""

    def class_of(self, error: BaseException) -> ErrorClass:
        """Return the class of an error; one for which there is a retry policy is transient."""
        own = {**self.errors, **dict.fromkeys(self.retry.on, ErrorClass.TRANSIENT)}
        return class_of(error, own, self.app_errors)

    def without_functions(self) -> Policy:
        """Return the same policy without decisions by a user's code."""
        return replace(
            self,
            retry=self.retry.without_vetoes(),
            undo=self.undo.without_vetoes(),
            errors=without_functions(self.errors),
            app_errors=without_functions(self.app_errors),
        )


class Transition(Struct, frozen=True, kw_only=True):
    """A move out of `running`, which the store carries out if (id, token) still matches."""

    id: UUID
    token: int
    state: State
    due: When | None = None
    failures: int = 0
    crashes: int = 0
    result: bytes | None = None
    error: ErrorInfo | None = None
    reason: str | None = None
    attempt: Attempt | None = None
    waiting_for: str | None = None
    """The key under which it is parked; if that is an event, until `due` at the longest."""
    steps: tuple[str, ...] = ()
    """Entries added to its step log."""
    saga: Saga | None = None
    """The state of the undos after this; None: unchanged."""
    hold: When | None = None
    """Until when the worker starts no job of this job's key; stores ignore it."""
    trips: bool = False
    """Whether it counts against a breaker, as decided in the child process where it happened."""


def settle(
    job: Job, outcome: Outcome, policy: Policy, *, now: datetime, jitter: float
) -> Transition:
    """Decide what becomes of a running job. `now` is the store's time, `jitter` is in [0, 1)."""
    if job.saga is Saga.UNDOING:
        move = _settle_undo(job, outcome, policy, now=now, jitter=jitter)
    else:
        move = undoing_first(job, _settle(job, outcome, policy, now=now, jitter=jitter))
    return _in_order(move, now) if policy.ordered else move


def _settle_undo(
    job: Job, outcome: Outcome, policy: Policy, *, now: datetime, jitter: float
) -> Transition:
    steps = Steps(job.steps)
    if isinstance(outcome, Compensated):
        attempt = _attempt(job, "undone", now)
        return all_undone(steps, _leave(job, State.DEAD, attempt=attempt))
    if isinstance(outcome, Cancelled):
        # Too late: a compensation that has begun runs to its end.
        outcome = Released(reason=outcome.reason)
    policy = replace(policy, retry=policy.undo, max_retries=UNDO_RETRIES)
    move = _settle(as_undo(job, steps), outcome, policy, now=now, jitter=jitter)
    return after_undo(steps, move)


def _in_order(move: Transition, now: datetime) -> Transition:
    """Keep the place of an ordered job that runs again later, so that others of its key wait."""
    if move.state is not State.SCHEDULED:
        return move
    attempt, again = move.attempt, move.due
    if attempt is not None and again is not None:
        retry_at = now + again if isinstance(again, timedelta) else again
        attempt = replace(attempt, retry_at=retry_at)
    return replace(move, state=State.PENDING, due=None, hold=again, attempt=attempt)


def _settle(
    job: Job, outcome: Outcome, policy: Policy, *, now: datetime, jitter: float
) -> Transition:
    match outcome:
        case Succeeded(result=result):
            return completed(job, result)
        case Snoozed():
            return _snooze(job, outcome, policy, now)
        case Cancelled(reason=reason):
            ended = _attempt(job, "cancelled", now)
            return _leave(job, State.CANCELLED, attempt=ended, reason=reason)
        case Released(reason=reason, begun=begun):
            attempt = _attempt(job, "released", now) if begun else None
            return _leave(job, State.PENDING, attempt=attempt, reason=reason)
        case Crashed():
            return _crash(job, outcome, policy, now)
        case Asleep() | Compensated():
            return _suspend(job, outcome)
        case Failed(exception=exception, error=error):
            error = _marked(job, replace(error, error_class=policy.class_of(exception)))
            if error.error_class is ErrorClass.SYSTEM:
                return _wait_for_system(job, error, now, jitter)
            return _fail(job, "failed", exception, error, policy, now, jitter)
        case TimedOut(after=after):
            late = TimeoutError(f"no result within {human(after)}")
            # Never a system error: a handler that always hangs would be run for ever.
            transient = ErrorClass.TRANSIENT
            error = ErrorInfo(type="TimeoutError", message=str(late), error_class=transient)
            return _fail(job, "timed out", late, _marked(job, error), policy, now, jitter)


def _snooze(job: Job, outcome: Snoozed, policy: Policy, now: datetime) -> Transition:
    if outcome.in_place and not policy.ordered:
        # Not by a due time, which would put it behind the whole backlog from then on.
        return replace(
            _leave(job, State.SCHEDULED, reason="no child process was free"), waiting_for=ALONE
        )
    attempt = _attempt(job, "snoozed", now) if outcome.begun else None
    reason = reason_of("snoozed", outcome.due)
    return _leave(job, State.SCHEDULED, due=outcome.due, attempt=attempt, reason=reason)


def completed(job: Job, result: bytes | None = None) -> Transition:
    """Return the transition of a job that succeeded."""
    if job.token is None:
        raise ValueError(_NOT_RUNNING.format(job))
    return Transition(id=job.id, token=job.token, state=_COMPLETED, result=result)


def _suspend(job: Job, outcome: Asleep | Compensated) -> Transition:
    if isinstance(outcome, Asleep):
        return asleep(job, outcome)
    raise ValueError(f"job {job.id} is not being undone")


def asleep(job: Job, outcome: Asleep) -> Transition:
    """Return the transition of a job that waits for a time or a key, without a slot."""
    move = _leave(job, State.SCHEDULED, due=outcome.due, reason=outcome.reason)
    return replace(move, steps=outcome.steps, waiting_for=outcome.waiting_for)


def give_up(job: Job, why: BaseException) -> Transition:
    """Return the last resort for an outcome that cannot be settled: dead, with the reason."""
    error = _marked(job, describe(why))
    reason = f"cannot be settled: {error}"
    return finally_(job, _leave(job, State.DEAD, failures=1, error=error, reason=reason))


def finally_(job: Job, move: Transition) -> Transition:
    """Return the transition of a job that is to end, with regard to its undos.

    As the last resort it raises nothing, whatever is in the job's step log.
    """
    if job.saga is not Saga.UNDOING:
        return undoing_first(job, move)
    try:
        return after_undo(Steps(job.steps), move)
    except Exception as error:  # noqa: BLE001 - whatever it is, the job must come to an end.
        reason = f"{move.reason or 'dead'}; {_LOG_UNREADABLE}: {error}"
        return replace(
            move, state=State.DEAD, saga=Saga.UNDOING, reason=storable(reason, _REASON_LIMIT)
        )


def _fail(
    job: Job,
    what: str,
    exception: BaseException,
    error: ErrorInfo,
    policy: Policy,
    now: datetime,
    jitter: float,
) -> Transition:
    attempt = _attempt(job, what, now, error)
    failures = job.failures + 1
    if error.error_class is ErrorClass.PERMANENT or not policy.retry.is_retryable(
        exception, failures=failures, default=policy.max_retries, override=job.max_retries
    ):
        reason = _why_dead(exception, error, failures)
        return _leave(job, State.DEAD, failures=1, error=error, attempt=attempt, reason=reason)
    due = _due(exception, error, policy, failures, jitter)
    reason = reason_of("resource error" if error.error_class is ErrorClass.RESOURCE else what, due)
    return _leave(
        job, State.SCHEDULED, due=due, failures=1, error=error, attempt=attempt, reason=reason
    )


def _due(
    exception: BaseException, error: ErrorInfo, policy: Policy, failures: int, jitter: float
) -> When:
    if is_a(exception, RetryAfter):
        return exception.due
    wait = policy.retry.for_error(exception).backoff.delay(failures, jitter)
    if error.error_class is ErrorClass.RESOURCE:
        return max(wait, _RESOURCE_BACKOFF.delay(failures, jitter))
    return wait


def _why_dead(exception: BaseException, error: ErrorInfo, failures: int) -> str:
    if is_a(exception, PayloadError):
        return error.message
    if error.error_class is ErrorClass.PERMANENT:
        return "permanent error"
    tries = "1 failure" if failures == 1 else f"{failures} failures"
    last = ", the last a resource error" if error.error_class is ErrorClass.RESOURCE else ""
    return f"gave up after {tries}{last}"


def _wait_for_system(job: Job, error: ErrorInfo, now: datetime, jitter: float) -> Transition:
    # The wait grows with the duration of the outage.
    attempt = _attempt(job, _SYSTEM_ERROR, now, error)
    before = takewhile(lambda each: each.outcome == _SYSTEM_ERROR, reversed(job.history))
    due = _SYSTEM_BACKOFF.delay(1 + len(list(before)), jitter)
    return _leave(job, State.SCHEDULED, due=due, error=error, attempt=attempt, reason=_SYSTEM_ERROR)


def _crash(job: Job, crash: Crashed, policy: Policy, now: datetime) -> Transition:
    """Charge the culprit, suspect the jobs that may be one, and run all others again uncharged."""
    blame = _blame(job, crash)
    error = _marked(job, ErrorInfo(type="Crashed", message=crash.reason, traceback=crash.log))
    attempt = _attempt(job, blame, now, error)
    if blame != CRASHED:
        return _leave(job, State.PENDING, attempt=attempt, reason=crash.reason)
    crashes = job.crashes + 1
    if crashes < policy.max_crashes:
        return _leave(job, State.PENDING, crashes=1, attempt=attempt, reason=crash.reason)
    times = "once" if crashes == 1 else f"{crashes} times"
    reason = f"killed its process {times}: {crash.reason}"
    return _leave(job, State.DEAD, crashes=1, error=error, attempt=attempt, reason=reason)


def _blame(job: Job, crash: Crashed) -> str:
    if crash.cause == "alone":
        return CRASHED
    if crash.cause == "process":
        return CRASHED if is_suspected_too_often(job) else SUSPECTED
    if crash.cause == "waited":
        if not is_not_begun_too_often(job):
            return NOT_BEGUN
        return CRASHED if is_suspected_too_often(job) else SUSPECTED
    with_host = crash.cause == "host"
    too_often = is_lost_too_often(job, with_host=with_host)
    if too_often:
        # A suspect ran alone, so no other job can be the culprit.
        return CRASHED if is_suspect(job) else SUSPECTED
    return LOST_WITH_HOST if with_host else LOST


def _marked(job: Job, error: ErrorInfo) -> ErrorInfo:
    return replace(error, fingerprint=fingerprint(job.kind, error))


def _attempt(job: Job, outcome: str, now: datetime, error: ErrorInfo | None = None) -> Attempt:
    started = job.started_at
    return Attempt(
        number=job.attempt,
        worker=job.worker,
        started_at=started,
        duration=max(now - started, timedelta(0)) if started else timedelta(0),
        outcome=outcome,
        error=error,
    )


def _leave(
    job: Job,
    state: State,
    *,
    due: When | None = None,
    failures: int = 0,
    crashes: int = 0,
    result: bytes | None = None,
    error: ErrorInfo | None = None,
    reason: str | None = None,
    attempt: Attempt | None = None,
) -> Transition:
    if job.token is None:
        raise ValueError(_NOT_RUNNING.format(job))
    return Transition(
        id=job.id,
        token=job.token,
        state=state,
        due=due,
        failures=failures,
        crashes=crashes,
        result=result,
        error=error,
        reason=None if reason is None else storable(reason, _REASON_LIMIT),
        attempt=attempt,
    )
