"""Owns the ways in which one attempt of a job can end, and the values by which a handler chooses one."""

from __future__ import annotations

from datetime import datetime, timedelta

from windlass.core.durations import Duration, When, when
from windlass.core.job import ErrorInfo, Fact


class Succeeded(Fact):
    """The handler returned; its result is encoded."""

    result: bytes | None = None


class Failed(Fact):
    """The handler raised, or its payload or result was no good."""

    exception: BaseException
    error: ErrorInfo


class TimedOut(Fact):
    """The handler did not return within its timeout."""

    after: timedelta


class Snoozed(Fact):
    """The handler asked to run again later; nothing is charged."""

    due: When


class Cancelled(Fact):
    """The job is to run no more: its handler, an operator or its expiry said so."""

    reason: str


class Released(Fact):
    """The worker gave the job back before it could finish; nothing is charged."""

    reason: str


class Crashed(Fact):
    """The worker lost its lease while the job ran: its process died, or stood still for too long."""

    reason: str


Outcome = Succeeded | Failed | TimedOut | Snoozed | Cancelled | Released | Crashed


class Snooze:
    """Returned by a handler: run me again later, and charge nothing.

    Example:
        `return Snooze("10m")`
    """

    __slots__ = ("due",)

    def __init__(self, due: Duration | datetime) -> None:
        self.due: When = when(due)


class Cancel:
    """Returned by a handler: the job is moot, and ends as cancelled for this reason.

    Example:
        `return Cancel("the order was withdrawn")`
    """

    __slots__ = ("reason",)

    def __init__(self, reason: str = "cancelled by its handler") -> None:
        self.reason = reason
