"""Owns reasons: what keeps a job from running, or became of it, in words and as facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from windlass.core.durations import human

START = "windlass worker MODULE:ATTR"
"""What starts a worker."""
_NAMED = 5


class Cause(StrEnum):
    """What a reason is about, for programs."""

    NOT_DUE = "not due"
    RETRYING = "retrying"
    SNOOZED = "snoozed"
    EVENT = "waits for an event"
    FLOW = "waits for its flow"
    PARKED = "parked"
    PAUSED = "paused"
    BREAKER = "breaker"
    LIMITED = "limited"
    NO_WORKER = "no worker"
    UNSERVED = "unserved"
    UNKNOWN_KIND = "unknown kind"
    DRAINING = "draining"
    BUSY = "busy"
    BEHIND = "behind others"
    SUSPECT = "suspect"
    NEXT = "next"
    RUNNING = "running"
    CANCELLING = "cancelling"
    LOST = "lost"
    UNDOING = "undoing"
    EXPIRES = "expires"
    COMPLETED = "completed"
    DEAD = "dead"
    CANCELLED = "cancelled"


@dataclass(frozen=True, kw_only=True)
class Reason:
    """One reason: the words, the command that changes it, and the facts behind the words."""

    cause: Cause
    told: str
    remedy: str = ""
    """A command, or advice; empty where time alone helps, or nothing is wrong."""
    since: datetime | None = None
    until: datetime | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What else a program may want, as JSON."""


def span(length: timedelta) -> str:
    """Write a duration without digits that nobody reads: `350ms`, `2.5s`, `3m12s`, `2d4h`."""
    seconds = max(length.total_seconds(), 0.0)
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 10:
        return human(timedelta(seconds=round(seconds, 1)))
    step = 3600 if seconds >= 86_400 else 60 if seconds >= 3600 else 1
    return human(timedelta(seconds=round(seconds) // step * step))


def at(moment: datetime, now: datetime) -> str:
    """Write an instant, and how far it is: `2026-03-01 09:00:00Z, in 5m`."""
    told = moment.astimezone(UTC).isoformat(" ", "seconds").replace("+00:00", "Z")
    far = f"{span(now - moment)} ago" if moment <= now else f"in {span(moment - now)}"
    return f"{told}, {far}"


def some(names: Iterable[str]) -> str:
    """Write a few names, and how many more there are."""
    listed = list(names)
    rest = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return ", ".join(listed[:_NAMED]) + rest
