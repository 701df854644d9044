"""Owns reasons: why a job does not run, or what became of it, in words and as facts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

from windlass.core.values.durations import brief

START = "windlass worker MODULE:ATTR"
"""The command that starts a worker."""


class Cause(StrEnum):
    """The subject of a reason, for programs."""

    NOT_DUE = "not due"
    RETRYING = "retrying"
    SNOOZED = "snoozed"
    EVENT = "waits for an event"
    FLOW = "waits for its flow"
    PARKED = "parked"
    PAUSED = "paused"
    BREAKER = "breaker"
    LIMITED = "limited"
    IN_ORDER = "in order"
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


class Reason(Struct, frozen=True, kw_only=True):
    """One reason: a message, the remedy, and the facts behind the message."""

    cause: Cause
    message: str
    remedy: str = ""
    """A command, or advice; empty where time alone helps, or nothing is wrong."""
    since: datetime | None = None
    until: datetime | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Further data for programs, as JSON."""


def at(moment: datetime, now: datetime) -> str:
    """Write an instant, and how far it is: `2026-03-01 09:00:00Z, in 5m`."""
    instant = moment.astimezone(UTC).isoformat(" ", "seconds").replace("+00:00", "Z")
    far = f"{brief(now - moment)} ago" if moment <= now else f"in {brief(moment - now)}"
    return f"{instant}, {far}"
