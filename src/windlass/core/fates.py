"""Owns what there is to say of a job that runs, or has ended; `core.why` asks for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from windlass.core.job import Job, WorkerRecord
from windlass.core.reasons import START, Cause, Reason, at, span
from windlass.core.states import State


def running(job: Job, workers: Sequence[WorkerRecord], now: datetime) -> Iterator[Reason]:
    """Say who runs a job since when, how far it is, and whether its holder is still there."""
    holder = next((each for each in workers if each.info.id == job.worker), None)
    cancel = f"windlass jobs cancel {job.id}"
    since = "" if job.started_at is None else f" since {at(job.started_at, now)}"
    told = f"worker {job.worker} runs it{since} (attempt {job.attempt})"
    if job.progress is not None:
        told += f"; it is at {job.progress.fraction:.0%} {job.progress.message}".rstrip()
    facts = {"worker": job.worker, "attempt": job.attempt}
    if holder is None or not holder.alive:
        yield _lost(job, holder, workers, now)
    else:
        told += f"; its lease lasts until {at(holder.lease_until, now)}"
    if job.cancel_requested:
        told_so = "it was asked to end, and ends when its handler does"
        yield Reason(cause=Cause.CANCELLING, told=told_so)
    yield Reason(cause=Cause.RUNNING, told=told, remedy=cancel, since=job.started_at, facts=facts)


def _lost(
    job: Job, holder: WorkerRecord | None, workers: Sequence[WorkerRecord], now: datetime
) -> Reason:
    ended = "is not known any more"
    if holder is not None:
        ended = f"has lost its lease ({at(min(holder.lease_until, now), now)})"
    told = f"worker {job.worker}, which holds it, {ended}"
    if any(each.alive for each in workers):
        return Reason(cause=Cause.LOST, told=f"{told}; another one rescues it soon")
    return Reason(cause=Cause.LOST, told=f"{told}, and none is alive to rescue it", remedy=START)


def finished(job: Job, now: datetime) -> Reason:
    """Say what became of a job."""
    ended = "" if job.finished_at is None else f" {at(job.finished_at, now)}"
    reason = f": {job.reason}" if job.reason else ""
    by = f" by {job.worker}" if job.worker else ""
    if job.state is State.COMPLETED:
        took = ""
        if job.finished_at and job.started_at:
            took = f" after {span(job.finished_at - job.started_at)}"
        told = f"it was completed{by}{took}{ended}"
        show = f"windlass jobs show {job.id}"
        return Reason(cause=Cause.COMPLETED, told=told, remedy=show, since=job.finished_at)
    if job.state is State.CANCELLED:
        told = f"it was cancelled{ended}{reason}"
        again = "nothing brings it back; enqueue a new one"
        return Reason(cause=Cause.CANCELLED, told=told, remedy=again, since=job.finished_at)
    error = f"; {job.error}" if job.error else ""
    told = f"it is dead since{ended}, after attempt {job.attempt}{reason}{error}"
    facts = {"attempt": job.attempt, "error": None if job.error is None else str(job.error)}
    redrive = f"windlass jobs retry {job.id}"
    return Reason(cause=Cause.DEAD, told=told, remedy=redrive, since=job.finished_at, facts=facts)
