"""Owns the reasons of a job that may not overtake another one of its key."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from windlass.core.jobs.job import Job
from windlass.core.policies.limit_usage import Hold
from windlass.core.values.text import listed
from windlass.core.why.reason import Cause, Reason, at

_SNOOZED = "snoozed"


def in_order(job: Job, hold: Hold, head: Job | None, now: datetime) -> Reason | None:
    """Return which job comes before this one, and when that runs; `head` is first in its lane.

    None: the job is first itself, and has not run before.
    """
    facts: dict[str, Any] = {"limit": hold.limit, "key": hold.key or None}
    if hold.jobs:
        names = listed(str(each.id) for each in hold.jobs)
        message = f"ordered: {names} of key {hold.key} runs before it"
        remedy = f"windlass why {hold.jobs[0].id}"
        return Reason(cause=Cause.IN_ORDER, message=message, remedy=remedy, facts=facts)
    first = job if head is None else head
    if first.id == job.id and not job.attempt:
        return None
    until, why = _again(first)
    when = "soon" if until is None else at(until, now)
    # A key is held back only for retries: something else keeps a fresh job from starting.
    retry = f"windlass {'jobs retry' if first.attempt else 'why'} {first.id}"
    if first.id == job.id:
        cause = Cause.SNOOZED if why == "was snoozed" else Cause.RETRYING
        message = f"it {why}, keeps its place, and runs again {when}"
        facts |= {"attempt": job.attempt, "failures": job.failures}
        return Reason(cause=cause, message=message, remedy=retry, until=until, facts=facts)
    message = f"ordered behind {first.id} of key {hold.key}, which {why} and runs {when}"
    facts |= {"first": str(first.id)}
    return Reason(cause=Cause.IN_ORDER, message=message, remedy=retry, until=until, facts=facts)


def held_back_until(job: Job, now: datetime) -> datetime | None:
    """Return when a job runs again that keeps its place until then; None if nothing holds it."""
    until = job.history[-1].retry_at if job.history else None
    return until if until is not None and until > now else None


def _again(first: Job) -> tuple[datetime | None, str]:
    if not first.history:
        return None, "has not run yet" if not first.attempt else "was suspended"
    last = first.history[-1]
    if last.outcome == _SNOOZED:
        return last.retry_at, "was snoozed"
    if last.error is not None or last.retry_at is not None:
        error = "" if first.error is None else f" ({first.error})"
        return last.retry_at, f"failed in attempt {last.number}{error}"
    return None, "has not run yet"
