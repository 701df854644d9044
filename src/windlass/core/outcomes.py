"""Owns the ways in which an attempt can end, and the values by which a handler chooses one."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

from windlass.core.durations import Duration, When, when
from windlass.core.job import ErrorInfo


class Succeeded(Struct, frozen=True, kw_only=True):
    """The handler returned; its result is encoded."""

    result: bytes | None = None


class Failed(Struct, frozen=True, kw_only=True):
    """The handler raised, or its payload or result was no good."""

    exception: BaseException
    error: ErrorInfo


class TimedOut(Struct, frozen=True, kw_only=True):
    """The handler did not return within its timeout."""

    after: timedelta


class Snoozed(Struct, frozen=True, kw_only=True):
    """The handler asked to run again later; nothing is charged.

    One that never began was put off by the worker, and leaves no attempt behind.
    """

    due: When
    begun: bool = True


class Cancelled(Struct, frozen=True, kw_only=True):
    """The job is to run no more: its handler, an operator or its expiry said so."""

    reason: str


class Released(Struct, frozen=True, kw_only=True):
    """The worker gave the job back before it could finish; nothing is charged.

    One that never began leaves no attempt behind.
    """

    reason: str
    begun: bool = True


class Crashed(Struct, frozen=True, kw_only=True):
    """The process that ran the job died, or its worker lost the lease.

    `cause` says how much that tells about the job: it was `alone` in a process that died; its
    worker's `process` died, with whatever else ran there; the `lease` ran out, for whatever reason;
    or it did, and no worker of that `host` is left.
    """

    cause: Literal["alone", "process", "lease", "host"]
    reason: str
    log: str = ""
    """The last lines that the process wrote."""


class Asleep(Struct, frozen=True, kw_only=True):
    """The handler waits for a time, or for something, without a slot; nothing is charged."""

    due: When | None
    """When it goes on at the latest."""
    steps: tuple[str, ...] = ()
    """What is added to the log of its steps, so that the next run goes on behind this."""
    waiting_for: str | None = None
    reason: str = "asleep"


class Compensated(Struct, frozen=True, kw_only=True):
    """All that the job's steps did, and that had to be undone, is undone."""


Outcome = (
    Succeeded | Failed | TimedOut | Snoozed | Cancelled | Released | Crashed | Asleep | Compensated
)


class Suspended(BaseException):
    """Ends a run that is no failure; handlers and middleware let it pass.

    It carries what the run's end shall be, or None if that is in the store already. It is none of
    the exceptions that `except Exception` means.
    """

    def __init__(self, outcome: Asleep | Compensated | None) -> None:
        super().__init__(outcome)
        self.outcome = outcome

    def __str__(self) -> str:
        return "this run ends here, and the job goes on later: let this pass"


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
        self.reason = str(reason)
