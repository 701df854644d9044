"""Owns what the end of an attempt means: a value or an exception becomes an outcome."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from windlass.core.errors import (
    JobCrashed,
    PayloadInvalid,
    PayloadTooLarge,
    ResultInvalid,
    StepError,
)
from windlass.core.failures.describe import describe
from windlass.core.failures.exceptions import is_a
from windlass.core.jobs.job import Job, Saga
from windlass.core.jobs.outcomes import (
    Asleep,
    Cancel,
    Cancelled,
    Crashed,
    Failed,
    Outcome,
    Snooze,
    Snoozed,
    Succeeded,
    TimedOut,
)
from windlass.core.payloads.redaction import Redaction
from windlass.core.values.durations import human
from windlass.handlers.context import Context
from windlass.handlers.middleware.watching import RunEnd
from windlass.handlers.target import Target
from windlass.observability.log_context import fields_of
from windlass.observability.logs import get_logger

log = get_logger("windlass.executor")

_DONE = Succeeded()


_PARKED = Asleep(due=None)


_CANCELLED_ITSELF = "the handler, or code that it called, cancelled its own task"


def refusal_of(job: Job) -> Outcome | None:
    """Return why a claimed job must not run, or None if it may.

    A job whose steps are being undone always runs, even if it has expired or was cancelled.
    """
    if not job.cancel_requested and job.expires_at is None:
        return None  # The common case.
    if job.saga is Saga.UNDOING:
        return None
    if job.cancel_requested:
        return Cancelled(reason=job.reason or "cancelled")
    if (
        job.expires_at is not None
        and job.started_at is not None
        and job.started_at >= job.expires_at
    ):
        return Cancelled(reason=f"expired at {job.expires_at.isoformat()}, before it could start")
    return None


def as_error(outcome: Outcome) -> TimeoutError | None:
    """Return the exception that is raised in a stopped handler, or None if its time is not up."""
    if isinstance(outcome, TimedOut):
        return TimeoutError(f"no result within {human(outcome.after)}")
    return None


def outcome_of_error(
    error: BaseException, redaction: Redaction, context: Context | None = None
) -> Outcome:
    """Turn an exception that a run raised into an outcome.

    A CancelledError is a failure, too: only runs that the worker did not stop come here, and a
    handler that cancels its own task would otherwise run again at once, forever.
    """
    if (suspended := _suspended(context)) is not None:
        return suspended
    described = describe(error, redaction)
    if is_a(error, asyncio.CancelledError) and not described.message:
        headline = f"{described.type}: {_CANCELLED_ITSELF}"
        bare = rf"^{re.escape(described.type)}$"
        traceback = re.sub(bare, headline, described.traceback, count=1, flags=re.MULTILINE)
        described = replace(described, message=_CANCELLED_ITSELF, traceback=traceback)
    return Failed(exception=error, error=described)


def outcome_of(context: Context, value: Any, target: Target) -> Outcome:
    """Turn the return value of a handler into an outcome."""
    if value is None and context.run_state.steps is None and not context.job.steps:
        return _DONE  # The common case.
    outcome = _judged(context, value, target)
    if context.run_state.log_finished is not None and type(outcome) is not Failed:
        context.run_state.log_finished()
    return outcome


def _judged(context: Context, value: Any, target: Target) -> Outcome:
    if (suspended := _suspended(context)) is not None:
        return suspended
    if context.run_state.settled:
        if value is not None:
            _warn_of_ignored_result(context)
        return _DONE
    match value:
        case None:
            return _end_of_steps(context) or _DONE
        case Snooze(due=due):
            return Snoozed(due=due)
        case Cancel(reason=reason):
            return Cancelled(reason=context.redaction.text(reason))
        case _:
            return _end_of_steps(context) or _result_of(context, value, target)


def _end_of_steps(context: Context) -> Outcome | None:
    """Return an error if the handler has left out steps that an earlier attempt recorded."""
    try:
        context.run_state.end_steps()
    except StepError as error:
        return Failed(exception=error, error=describe(error, context.redaction))
    return None


def _suspended(context: Context | None) -> Outcome | None:
    """Return the outcome of a run that suspended itself, whatever its handler did afterwards."""
    if (
        context is None
        or context.run_state.steps is None
        or context.run_state.steps.suspended is None
    ):
        return None
    return context.run_state.steps.suspended.outcome or _PARKED


def _warn_of_ignored_result(context: Context) -> None:
    log.warning(
        "job.result_ignored",
        **fields_of(context.job),
        why="ctx.transaction() had already completed the job when its handler returned this",
    )


def _result_of(context: Context, value: Any, target: Target) -> Outcome:
    kind, limit = context.job.kind, context.run_state.environment.max_result
    try:
        return Succeeded(result=target.encode_result(kind, value, limit=limit))
    except PayloadTooLarge as large:
        reason = (
            f"it has at least {large.size:,} bytes, the limit is {limit:,}; store it elsewhere "
            "and return a reference, or raise WINDLASS_MAX_RESULT"
        )
    except PayloadInvalid as refused:
        reason = f"{refused.field}: {refused.reason}" if refused.field else refused.reason
    error = ResultInvalid(kind, reason)
    return Failed(exception=error, error=describe(error, context.redaction))


async def flush_at_end(context: Context) -> None:
    """Store what a run has streamed before its outcome, after which that would come too late.

    The outcome stands whatever happens here: a run whose time is up does not wait for the store.
    """
    try:
        await context.run_state.flush_stream()
    except BaseException as error:  # noqa: BLE001 - also if it is cancelled.
        why = f"{type(error).__qualname__}: {error}"
        log.warning("stream.incomplete", **fields_of(context.job), error=why)


def run_end(
    context: Context, outcome: Outcome, value: Any, duration: timedelta, *, stopped: bool = False
) -> RunEnd:
    """Return how a run ended that returned `value`, or raised, or was `stopped` by the worker."""
    if context.run_state.settled:
        # Committed by its own transaction: no later result or error can change that.
        return RunEnd(end="returned", duration=duration, completed=True)
    match outcome:
        case Succeeded() if context.job.saga is not Saga.UNDOING:
            return RunEnd(end="returned", duration=duration, completed=True, result=value)
        case Failed(exception=error):
            return RunEnd(end="raised", duration=duration, error=error)
        case Crashed(reason=reason) if not stopped:
            return RunEnd(end="interrupted", duration=duration, error=JobCrashed(reason))
        case TimedOut():
            late = context.run_state.timeout_error or as_error(outcome)
            return RunEnd(end="interrupted", duration=duration, error=late)
        case _:
            return RunEnd(end="interrupted" if stopped else "returned", duration=duration)
