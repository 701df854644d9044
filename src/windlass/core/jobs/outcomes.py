"""Owns the ways in which an attempt can end, and the values by which a handler chooses one."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

from windlass.core.jobs.job import ErrorInfo
from windlass.core.values.durations import Duration, When, when


class Succeeded(Struct, frozen=True, kw_only=True):
    """The handler returned; its result is encoded."""

    result: bytes | None = None


class Failed(Struct, frozen=True, kw_only=True):
    """The handler raised, or its payload or result was invalid."""

    exception: BaseException
    error: ErrorInfo


class TimedOut(Struct, frozen=True, kw_only=True):
    """The handler did not return within its timeout."""

    after: timedelta


class Snoozed(Struct, frozen=True, kw_only=True):
    """The handler asked to run again later; nothing is charged.

    A job that the worker postponed before it began leaves no attempt behind.
    """

    due: When
    begun: bool = True
    in_place: bool = False
    """Whether it keeps its place among those that wait, like a suspect that was postponed."""


class Cancelled(Struct, frozen=True, kw_only=True):
    """The job is not to run any more: its handler, an operator or its expiry decided so."""

    reason: str


class Released(Struct, frozen=True, kw_only=True):
    """The worker gave the job back before it could finish; nothing is charged.

    One that never began leaves no attempt behind.
    """

    reason: str
    begun: bool = True


class Crashed(Struct, frozen=True, kw_only=True):
    """The process that ran the job died, or its worker lost the lease.

    `cause` is the evidence against the job: it was `alone` in a process that died; its worker's
    `process` died, with everything else that ran there; that died while the job only `waited` there
    for its turn; the `lease` ran out, for whatever reason; or it did, and no worker of that `host`
    is left.
    """

    cause: Literal["alone", "process", "waited", "lease", "host"]
    reason: str
    log: str = ""
    """The last lines that the process wrote."""


class Asleep(Struct, frozen=True, kw_only=True):
    """The handler waits for a time or a key, without a slot; nothing is charged."""

    due: When | None
    """When it continues at the latest."""
    steps: tuple[str, ...] = ()
    """Entries added to its step log, so that the next run continues after this."""
    waiting_for: str | None = None
    reason: str = "asleep"


class Compensated(Struct, frozen=True, kw_only=True):
    """Everything that the job's steps did, and that had to be undone, is undone."""


Outcome = (
    Succeeded | Failed | TimedOut | Snoozed | Cancelled | Released | Crashed | Asleep | Compensated
)


class Suspended(BaseException):
    """Ends a run that is no failure; handlers and middleware let it pass.

    It carries the outcome of the run, or None if that is in the store already. It is not an
    `Exception`, so `except Exception` does not catch it.
    """

    def __init__(self, outcome: Asleep | Compensated | None) -> None:
        super().__init__(outcome)
        self.outcome = outcome

    def __str__(self) -> str:
        return "this exception ends the run, and the job continues later; do not catch it"


class Snooze:
    """Returned by a handler: run me again later, and charge nothing.

    Example:
        `return Snooze("10m")`
    """

    __slots__ = ("due",)
    if TYPE_CHECKING:
        __sizeof__: None  # type: ignore[assignment]  # So that it is no `Value`.

    def __init__(self, due: Duration | datetime) -> None:
        self.due: When = when(due, "due of Snooze")


class Cancel:
    """Returned by a handler: the job is moot, and ends as cancelled for this reason.

    Example:
        `return Cancel("the order was withdrawn")`
    """

    __slots__ = ("reason",)
    if TYPE_CHECKING:
        __sizeof__: None  # type: ignore[assignment]  # So that it is no `Value`.

    def __init__(self, reason: str = "cancelled by its handler") -> None:
        self.reason = str(reason)


Steer = Snooze | Cancel
"""The values that a handler returns instead of a result."""


class Value(Protocol):
    """Any result of a handler: for a type checker, everything but a `Steer`.

    Types cannot exclude others. But every type has the methods of `object`, and `Snooze` and
    `Cancel` are declared to lack one.
    """

    def __sizeof__(self) -> int:
        """Do as every object does."""
