"""Owns the story of a job: what happened to it, in the order of time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from windlass.core.audit import AuditEntry
from windlass.core.jobs.job import Attempt, ErrorInfo, Job
from windlass.core.jobs.states import FINISHED, State
from windlass.core.values.durations import brief
from windlass.core.values.text import plural

Tone = Literal["plain", "good", "bad", "warn", "busy", "quiet"]
_TONES: dict[str, Tone] = {"snoozed": "quiet", "released": "quiet", "cancelled": "quiet"}
_SHORTEST_WAIT = timedelta(milliseconds=50)


@dataclass(frozen=True, kw_only=True)
class Chapter:
    """One thing that happened, or that will."""

    at: datetime | None
    title: str
    tone: Tone = "plain"
    took: timedelta | None = None
    detail: str = ""
    error: ErrorInfo | None = None
    ahead: bool = False
    """Whether it lies in the future."""


def story_of(
    job: Job, now: datetime, *, why: str = "", acted: Iterable[AuditEntry] = ()
) -> list[Chapter]:
    """Tell a job from its enqueue to its end, or to what comes next.

    `why` says what a job that is due waits for; `acted` are the operators' actions on it.
    """
    first = job.history[0].started_at if job.history else job.started_at
    story = [
        *_beginning(job, first),
        *(_attempt(each) for each in job.history),
        *_present(job, now, why),
        *_end(job),
    ]
    for entry in sorted(acted, key=lambda each: each.at):
        story.insert(_place(story, entry.at), _action(entry))
    return story


def _place(story: list[Chapter], at: datetime) -> int:
    """Return where an action belongs: before what it caused, which has the same time."""
    later = (n for n, each in enumerate(story) if each.at is not None and each.at >= at)
    return next(later, len(story))


def _action(entry: AuditEntry) -> Chapter:
    detail = f"by {entry.by} ({entry.via})"
    return Chapter(
        at=entry.at,
        title=f"Operator: {entry.action}",
        detail=f"{detail}: {entry.reason}" if entry.reason else detail,
    )


def _beginning(job: Job, first: datetime | None) -> Iterator[Chapter]:
    later = job.due_at - job.created_at
    due = f"due {brief(later)} later" if first is None and later > _SHORTEST_WAIT else ""
    yield Chapter(at=job.created_at, title="Enqueued", detail=due)
    if first is not None and first - job.created_at > _SHORTEST_WAIT:
        yield Chapter(at=None, title="Waited", tone="quiet", took=first - job.created_at)


def _attempt(attempt: Attempt) -> Chapter:
    outcome = attempt.outcome
    by = f"on {attempt.worker}" if attempt.worker else ""
    tone: Tone = "bad" if attempt.error is not None else _TONES.get(outcome, "warn")
    return Chapter(
        at=attempt.started_at,
        title=f"Attempt {attempt.number} {outcome}",
        tone=tone,
        took=attempt.duration,
        detail=by,
        error=attempt.error,
    )


def _present(job: Job, now: datetime, why: str) -> Iterator[Chapter]:
    if job.state is State.RUNNING:
        progress = ""
        if job.progress is not None:
            progress = f", {job.progress.fraction:.0%} {job.progress.message}".rstrip()
        took = None if job.started_at is None else now - job.started_at
        yield Chapter(
            at=job.started_at,
            title=f"Attempt {job.attempt} is running",
            tone="busy",
            took=took,
            detail=f"on {job.worker}{progress}",
        )
        if job.cancel_requested:
            yield Chapter(at=None, title="Cancellation requested", tone="warn")
    elif job.state is State.SCHEDULED and job.waiting_for is None:
        title = f"Retry, after {plural(job.failures, 'failure')}" if job.failures else "Due"
        yield Chapter(at=job.due_at, title=title, tone="quiet", ahead=job.due_at > now)
    elif job.state is State.PENDING:
        yield Chapter(at=job.due_at, title="Due, and waiting to start", tone="warn", detail=why)


def _end(job: Job) -> Iterator[Chapter]:
    if job.state not in FINISHED:
        return
    tones: dict[State, Tone] = {State.COMPLETED: "good", State.DEAD: "bad"}
    took = None
    # The last attempt of a job that failed is part of its history.
    if job.state is State.COMPLETED and job.started_at and job.finished_at:
        took = job.finished_at - job.started_at
    by = f"on {job.worker}, attempt {job.attempt}" if job.state is State.COMPLETED else ""
    yield Chapter(
        at=job.finished_at,
        title=job.state.value.capitalize(),
        tone=tones.get(job.state, "quiet"),
        took=took,
        detail=job.reason or by,
        error=None if job.history and job.history[-1].error else job.error,
    )
