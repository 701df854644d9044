"""Owns the log lines about the transitions of jobs, with the fields that each of them carries."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from windlass.core.failures.crash_suspects import ALONE, CRASHED, LOST, LOST_WITH_HOST, SUSPECTED
from windlass.core.jobs.job import ErrorInfo, Job, Saga
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import State
from windlass.core.values.durations import brief, resolve
from windlass.core.values.text import storable
from windlass.observability.log_context import fields_of
from windlass.observability.logs import get_logger

log = get_logger("windlass.worker")
RESCUED = "job.rescued"
"""Logged at once by the worker that takes over a job whose lease was lost."""
_FRAME = '  File "'
_TRACEBACK_LIMIT = 8_000
"""Characters: log collectors cut long lines anywhere, often at 16 kB. The store has all of it."""
_CRASHES = {
    CRASHED: "job.crashed",
    SUSPECTED: "job.suspected",
    LOST: RESCUED,
    LOST_WITH_HOST: RESCUED,
}
"""Events of jobs that return to `pending` because their process, or their lease, was lost."""


def log_settled(job: Job, move: Transition) -> None:
    """Log the transition of a job that was not completed."""
    crashed = move.attempt is not None and move.attempt.outcome in _CRASHES
    is_trouble = move.failures or move.error is not None or crashed
    say = log.error if move.state is State.DEAD else log.warning if is_trouble else log.info
    if move.waiting_for == ALONE:
        # The job was claimed while no child was free: that can happen to dozens of jobs, often.
        say = log.debug
    fields: dict[str, Any] = _next(move)
    if move.attempt is not None:
        fields["duration"] = round(move.attempt.duration.total_seconds(), 6)
    if move.error is not None:
        fields |= _error(move.error)
    say(
        event_of(move),
        **fields_of(job),
        failures=job.failures + move.failures,
        reason=move.reason,
        **fields,
    )


def _error(error: ErrorInfo) -> dict[str, Any]:
    """Return the log fields of an error; the traceback only if a handler raised it."""
    fields: dict[str, Any] = {"error": str(error)}
    if error.error_class is not None:
        fields["error_class"] = error.error_class.value
        if _FRAME in error.traceback:
            fields["traceback"] = storable(error.traceback, _TRACEBACK_LIMIT)
    return fields


def _next(move: Transition) -> dict[str, Any]:
    """Return in how long the job is tried again, and when: by this host's clock, as the line is."""
    # A job of an ordered kind keeps its place, and is held back there.
    due = move.due or move.hold
    if due is None:
        return {}
    now = datetime.now(UTC)
    at = resolve(due, now)
    return {"next": brief(max(at - now, timedelta(0))), "next_at": at}


def event_of(move: Transition) -> str:
    """Return the event name for the transition of a job that was not completed."""
    if move.state is State.SCHEDULED or move.hold is not None:
        if move.failures:
            return "job.retried"
        if move.waiting_for == ALONE:
            return "job.put_off"
        return "job.slept" if move.steps and move.attempt is None else "job.snoozed"
    if move.saga is Saga.UNDOING and move.state is State.PENDING and move.steps:
        return "job.undoing"
    if move.state is State.PENDING:
        return _CRASHES.get(move.attempt.outcome if move.attempt else "", "job.released")
    return f"job.{move.state.value}"
