"""Owns the log lines about what became of a job, with the fields that every one of them carries."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from windlass.core.durations import human, resolve
from windlass.core.job import Job, Saga
from windlass.core.settle import Transition
from windlass.core.states import State
from windlass.core.suspicion import CRASHED, LOST, LOST_WITH_HOST, SUSPECTED
from windlass.observe.logs import get_logger
from windlass.observe.running import fields_of

log = get_logger("windlass.worker")
RESCUED = "job.rescued"
"""What whoever takes over the job of a worker that lost its lease says at once."""
_CRASHES = {
    CRASHED: "job.crashed",
    SUSPECTED: "job.suspected",
    LOST: RESCUED,
    LOST_WITH_HOST: RESCUED,
}
"""What a job's way back to `pending` is called when its process, or its lease, was lost."""


def log_settled(job: Job, move: Transition) -> None:
    """Log what became of a job that was not completed."""
    crashed = move.attempt is not None and move.attempt.outcome in _CRASHES
    is_trouble = move.failures or move.state is State.DEAD or move.error is not None or crashed
    say = log.warning if is_trouble else log.info
    fields: dict[str, Any] = _next(move)
    if move.error is not None:
        fields["error"] = str(move.error)
        if move.error.error_class is not None:
            fields["error_class"] = move.error.error_class.value
    say(
        event_of(move),
        **fields_of(job),
        failures=job.failures + move.failures,
        reason=move.reason,
        **fields,
    )


def _next(move: Transition) -> dict[str, Any]:
    """Return in how long the job is tried again, and when: by this host's clock, as the line is."""
    # A job whose kind is ordered keeps its place, and is held back there.
    due = move.due or move.hold
    if due is None:
        return {}
    now = datetime.now(UTC)
    at = resolve(due, now)
    return {"next": human(max(at - now, timedelta(0))), "next_at": at}


def event_of(move: Transition) -> str:
    """Return the name of what happened to a job that was not completed."""
    if move.state is State.SCHEDULED or move.hold is not None:
        if move.failures:
            return "job.retried"
        return "job.slept" if move.steps and move.attempt is None else "job.snoozed"
    if move.saga is Saga.UNDOING and move.state is State.PENDING and move.steps:
        return "job.undoing"
    if move.state is State.PENDING:
        return _CRASHES.get(move.attempt.outcome if move.attempt else "", "job.released")
    return f"job.{move.state.value}"
