"""Owns steps of the store's clock, and what a store repairs after one.

Everything that waits was placed by the clock as it was. After a step back it would wait for as long
as the step was, and jobs that come later would be placed before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from windlass.core.records import Json
from windlass.core.values.durations import When

T = TypeVar("T")
Moment = TypeVar("Moment", int, datetime)
RECORD = "clock:step"
"""The name of the record that holds the last step."""
LEAST = timedelta(seconds=1)
"""By how much a clock must have gone back to count as set back.

A job that is less ahead of the clock may have been enqueued since the clock was read.
"""
LEAP = timedelta(seconds=5)
"""By how much it must be ahead of what has passed to count as set forward."""
AHEAD = timedelta(seconds=2)
"""An ordered lane gives no job while one of its jobs is placed further ahead of the clock."""
LATE = timedelta(seconds=5)
"""How long a job may have been due without being pending, when the clock was set back."""
SPANS = frozenset({"failed", "timed out", "resource error", "system error", "snoozed"})
"""The reasons of jobs that wait for a span, which a step of the clock does not make longer."""
_ALIKE, _NEAR = timedelta(seconds=10), timedelta(minutes=5)
"""Steps whose lengths differ by less, noticed within that time, are one that two workers noticed:
a worker that was cut off for a while comes later."""


class Step(Struct, frozen=True, kw_only=True):
    """A step of the store's clock."""

    by: timedelta
    """Its length; below 0: back."""
    at: datetime
    """When it was noticed, by the clock after the step."""

    def is_like(self, other: Step, seen: datetime | None = None) -> bool:
        """Return whether another worker noticed this same step.

        Not if `seen`, the last time of the clock before this step back, is later than any that the
        clock showed before the other one.
        """
        if seen is not None and seen > other.at - other.by + LEAST:
            return False
        return abs(self.by - other.by) < _ALIKE and abs(self.at - other.at) < _NEAR


def reason_of(reason: str, due: When) -> str:
    """Return the reason of a job that waits: one for a span, and one for a given time."""
    return f"{reason}, until a given time" if isinstance(due, datetime) else reason


def read_step(record: Json | None) -> Step | None:
    """Return the step in a record; None if there is none, or an unreadable one."""
    try:
        return None if record is None else msgspec.convert(record, Step)
    except msgspec.ValidationError:
        return None


class Places(Struct, frozen=True, kw_only=True):
    """New places for jobs that the clock before a step back has placed."""

    now: datetime
    begin: datetime
    """Jobs that were enqueued since the step are placed here, or later."""
    by: timedelta
    """By how much retries come sooner; 0: not at all, since it is unknown."""

    @classmethod
    def after(cls, by: timedelta, ago: timedelta, now: datetime) -> Places:
        """Return the places after a step of that length, at most that long ago."""
        return cls(now=now, begin=now - ago, by=by)

    @property
    def ahead(self) -> datetime:
        """Jobs that are due later were enqueued before the clock was set back."""
        return self.now + LEAST

    @property
    def retries_from(self) -> datetime:
        """The first due time of a retry that waited when the clock was set back."""
        return max(self.now, self.begin + self.by - LATE)

    def retry(self, due_at: datetime) -> datetime:
        """Return when a retry is due by the clock as it is now."""
        return max(due_at - self.by, self.now)


def enqueued_before(placed: Sequence[tuple[Any, Moment, T]], ahead: Moment) -> list[T]:
    """Return the jobs of one lane that were enqueued before the clock was set back.

    `placed` has the jobs that are due since then: arrival, due time, job. A job is from before the
    step if it is due after `ahead`, which no job can be that came since, or arrived before such a
    job.
    """
    arrived = [arrival for arrival, due, _ in placed if due > ahead]
    last = max(arrived, default=None)
    return [] if last is None else [job for arrival, _, job in placed if arrival <= last]
