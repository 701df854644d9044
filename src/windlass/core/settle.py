"""Owns the decision what becomes of a job after an attempt: `settle(job, outcome, policy)`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct

from windlass.core.durations import When, human
from windlass.core.errors import PayloadError, RetryAfter
from windlass.core.failure import describe
from windlass.core.job import Attempt, ErrorInfo, Job
from windlass.core.outcomes import (
    Cancelled,
    Crashed,
    Failed,
    Outcome,
    Released,
    Snoozed,
    Succeeded,
    TimedOut,
)
from windlass.core.retry import Retry, is_permanent
from windlass.core.states import State
from windlass.core.suspicion import (
    CRASHED,
    LOST,
    LOST_WITH_HOST,
    SUSPECTED,
    is_lost_too_often,
    is_suspect,
)
from windlass.core.text import storable

_REASON_LIMIT = 1_000
_NOT_RUNNING = "job {0.id} is {0.state}, so there is nothing to settle"


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What bounds the tries of one job."""

    retry: Retry
    max_retries: int = 3
    max_crashes: int = 3


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


def settle(
    job: Job, outcome: Outcome, policy: Policy, *, now: datetime, jitter: float
) -> Transition:
    """Decide what becomes of a running job. `now` is the store's time, `jitter` is in [0, 1)."""
    match outcome:
        case Succeeded(result=result):
            return completed(job, result)
        case Snoozed(due=due):
            attempt = _attempt(job, "snoozed", now)
            return _leave(job, State.SCHEDULED, due=due, attempt=attempt, reason="snoozed")
        case Cancelled(reason=reason):
            attempt = _attempt(job, "cancelled", now)
            return _leave(job, State.CANCELLED, attempt=attempt, reason=reason)
        case Released(reason=reason):
            attempt = _attempt(job, "released", now)
            return _leave(job, State.PENDING, attempt=attempt, reason=reason)
        case Crashed():
            return _crash(job, outcome, policy, now)
        case Failed(exception=exception, error=error):
            return _fail(job, "failed", exception, error, policy, now, jitter)
        case TimedOut(after=after):
            late = TimeoutError(f"no result within {human(after)}")
            error = ErrorInfo(type="TimeoutError", message=str(late))
            return _fail(job, "timed out", late, error, policy, now, jitter)


def completed(job: Job, result: bytes | None = None) -> Transition:
    """Return the transition of a job that succeeded."""
    if job.token is None:
        raise ValueError(_NOT_RUNNING.format(job))
    return Transition(id=job.id, token=job.token, state=State.COMPLETED, result=result)


def give_up(job: Job, why: BaseException) -> Transition:
    """Return the last resort for an outcome that cannot be settled: dead, with the reason."""
    error = describe(why)
    return _leave(job, State.DEAD, failures=1, error=error, reason=f"cannot be settled: {error}")


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
    retry = policy.retry
    if not retry.is_retryable(
        exception, failures=failures, default=policy.max_retries, override=job.max_retries
    ):
        reason = _why_dead(exception, error, failures)
        return _leave(job, State.DEAD, failures=1, error=error, attempt=attempt, reason=reason)
    due: When
    if isinstance(exception, RetryAfter):
        due = exception.due
    else:
        due = retry.for_error(exception).backoff.delay(failures, jitter)
    return _leave(
        job, State.SCHEDULED, due=due, failures=1, error=error, attempt=attempt, reason=what
    )


def _why_dead(exception: BaseException, error: ErrorInfo, failures: int) -> str:
    if isinstance(exception, PayloadError):
        return error.message
    if is_permanent(exception):
        return "permanent error"
    tries = "1 failure" if failures == 1 else f"{failures} failures"
    return f"gave up after {tries}"


def _crash(job: Job, crash: Crashed, policy: Policy, now: datetime) -> Transition:
    """Charge the guilty, suspect who may be, and let everybody else run again as if nothing was."""
    verdict = _verdict(job, crash)
    error = ErrorInfo(type="Crashed", message=crash.reason, traceback=crash.log)
    attempt = _attempt(job, verdict, now, error)
    if verdict != CRASHED:
        return _leave(job, State.PENDING, attempt=attempt, reason=crash.reason)
    crashes = job.crashes + 1
    if crashes < policy.max_crashes:
        return _leave(job, State.PENDING, crashes=1, attempt=attempt, reason=crash.reason)
    times = "once" if crashes == 1 else f"{crashes} times"
    reason = f"killed its process {times}: {crash.reason}"
    return _leave(job, State.DEAD, crashes=1, error=error, attempt=attempt, reason=reason)


def _verdict(job: Job, crash: Crashed) -> str:
    if crash.cause == "alone":
        return CRASHED
    if crash.cause == "process":
        return SUSPECTED
    with_host = crash.cause == "host"
    too_often = is_lost_too_often(job, with_host=with_host)
    if is_suspect(job) and (too_often or not with_host):
        return CRASHED  # It ran alone, so nobody else can have done it.
    if too_often:
        return SUSPECTED
    return LOST_WITH_HOST if with_host else LOST


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
