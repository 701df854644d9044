"""Owns the reasons of a job that runs, or has ended; see `core.why.explain`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from windlass.core.jobs.job import Job
from windlass.core.jobs.moves import is_bound
from windlass.core.jobs.states import State
from windlass.core.values.durations import brief
from windlass.core.values.text import listed
from windlass.core.why.reason import START, Cause, Reason, at
from windlass.core.workers import WorkerRecord

_MAX_NAMED_JOBS = 20
"""How many jobs a command names."""
_INVALID_PAYLOAD = "windlass.PayloadInvalid"
"""The type of the error of a payload that the handler does not accept, as it is stored."""


def running(job: Job, workers: Sequence[WorkerRecord], now: datetime) -> Iterator[Reason]:
    """Yield who runs a job since when, its progress, and whether its worker is alive."""
    holder = next((each for each in workers if each.info.id == job.worker), None)
    cancel = f"windlass jobs cancel {job.id}"
    since = "" if job.started_at is None else f" since {at(job.started_at, now)}"
    message = f"running on worker {job.worker}{since} (attempt {job.attempt})"
    if job.progress is not None:
        message += f"; progress {job.progress.fraction:.0%} {job.progress.message}".rstrip()
    facts = {"worker": job.worker, "attempt": job.attempt}
    if holder is None or not holder.alive:
        yield _lost(job, holder, workers, now)
    else:
        message += f"; its lease lasts until {at(holder.lease_until, now)}"
    if job.cancel_requested:
        cancelling = "cancellation was requested; it ends when its handler does"
        yield Reason(cause=Cause.CANCELLING, message=cancelling)
    yield Reason(
        cause=Cause.RUNNING, message=message, remedy=cancel, since=job.started_at, facts=facts
    )


def _lost(
    job: Job, holder: WorkerRecord | None, workers: Sequence[WorkerRecord], now: datetime
) -> Reason:
    ended = "is no longer known"
    if holder is not None:
        ended = f"has lost its lease ({at(min(holder.lease_until, now), now)})"
    message = f"its worker {job.worker} {ended}"
    if any(each.alive for each in workers):
        return Reason(cause=Cause.LOST, message=f"{message}; another worker will rescue it")
    return Reason(
        cause=Cause.LOST, message=f"{message}, and no worker is alive to rescue it", remedy=START
    )


def finished(job: Job, now: datetime, culprits: Sequence[Job] = ()) -> Reason:
    """Return what became of a job; `culprits` are the jobs that made its flow dead."""
    ended = "" if job.finished_at is None else f" {at(job.finished_at, now)}"
    reason = f": {job.reason}" if job.reason else ""
    by = f" by {job.worker}" if job.worker else ""
    if job.state is State.COMPLETED:
        took = ""
        if job.finished_at and job.started_at:
            took = f" after {brief(job.finished_at - job.started_at)}"
        message = f"completed{by}{took}{ended}"
        show = f"windlass jobs show {job.id}"
        return Reason(cause=Cause.COMPLETED, message=message, remedy=show, since=job.finished_at)
    if job.state is State.CANCELLED:
        message = f"cancelled{ended}{reason}"
        again = "enqueue a new job; a cancelled one cannot be restored"
        return Reason(cause=Cause.CANCELLED, message=message, remedy=again, since=job.finished_at)
    return _dead(job, ended, culprits)


def _dead(job: Job, ended: str, culprits: Sequence[Job]) -> Reason:
    message = f"dead since{ended}, after attempt {job.attempt}{_why_dead(job)}"
    facts: dict[str, Any] = {
        "attempt": job.attempt,
        "error": None if job.error is None else str(job.error),
    }
    remedy = _revival(job)
    if culprits:
        # The flow's own job only sums up: run again before them, it would die again.
        ids = [str(each.id) for each in culprits]
        message += f"; its flow finishes once these do: {listed(ids)}"
        facts["culprits"] = ids
        remedy = f"windlass jobs retry {' '.join(ids[:_MAX_NAMED_JOBS])}"
    elif job.id == job.flow:
        remedy = f"undo the remaining steps by hand, then: windlass dead purge {job.id}"
    return Reason(
        cause=Cause.DEAD, message=message, remedy=remedy, since=job.finished_at, facts=facts
    )


def _why_dead(job: Job) -> str:
    """Return the reason and the error, once where the reason is the error's own message."""
    reason = f": {job.reason}" if job.reason else ""
    if job.error is None or job.error.message == job.reason:
        return reason
    return f"{reason}; {job.error}"


def _has_invalid_payload(job: Job) -> bool:
    """Return whether a job died of its own payload, and not of one that its handler enqueued."""
    if job.error is None or job.error.type != _INVALID_PAYLOAD:
        return False
    return job.error.message.startswith(f"invalid payload for {job.kind!r}:")


def _revival(job: Job) -> str:
    """Return what gives a dead job a new life that does not end the same way at once."""
    retry = f"windlass jobs retry {job.id}"
    if not _has_invalid_payload(job):
        return retry
    if is_bound(job):
        return f"let the handler accept the payload, then: {retry}"
    return (
        "let the handler accept the payload and retry the job, or correct the payload: "
        f"windlass dead redrive {job.id} --payload JSON"
    )
