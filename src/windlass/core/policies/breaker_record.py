"""Owns the record of a circuit breaker, and how it changes: `react` to events, `force` by hand."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from windlass.core.policies.breaker import Rule
from windlass.core.records import Json
from windlass.core.values.durations import human
from windlass.core.values.text import storable

RECORD = "breaker:"
"""The prefix of the records of breakers."""
HISTORY = 50
"""How many changes a breaker remembers, the latest."""
_WHY_LIMIT = 300


class BreakerState(StrEnum):
    """Closed lets everything start, open nothing, half-open a few probes."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class BreakerChange(Struct, frozen=True, kw_only=True):
    """One change of a breaker: when, from which state to which, why, and by whom."""

    at: datetime
    old: BreakerState = msgspec.field(name="from")
    new: BreakerState = msgspec.field(name="to")
    why: str
    by: str


class BreakerStatus(Struct, frozen=True, kw_only=True):
    """The state of a breaker."""

    name: str
    state: BreakerState = BreakerState.CLOSED
    failures: int = 0
    """Failures in a row."""
    opened_at: datetime | None = None
    until: datetime | None = None
    """When its cooldown is over; None unless it is open, or when only a person can close it."""
    successes: int = 0
    """How many probes in a row succeeded since it became half-open."""
    probes: Mapping[str, int] = {}
    """How many jobs each worker may start, or has started, while it is half-open."""
    forced: Literal["open", "closed"] | None = None
    """The state in which a person keeps it."""
    kinds: tuple[str, ...] = ()
    """The kinds that use it, as reported by workers."""
    changes: int = 0
    """Failures in all."""
    history: tuple[BreakerChange, ...] = ()
    """The latest changes, the oldest first."""

    @property
    def why(self) -> str:
        """Why it is in its state; empty if it has never been in another."""
        return self.history[-1].why if self.history else ""


def read_status(name: str, record: Json | None) -> BreakerStatus:
    """Return the status in a record; a missing or unreadable one is a closed breaker."""
    if record is not None:
        try:
            return replace(msgspec.convert({**record, "name": name}, BreakerStatus), name=name)
        except msgspec.ValidationError:
            pass  # Written by another release, or by hand. An unreadable breaker must not block.
    return BreakerStatus(name=name)


def record_of(status: BreakerStatus) -> Json:
    record: Json = msgspec.to_builtins(status)
    del record["name"]
    return record


# -- events ------------------------------------------------------------------------------------


class Failure(Struct, frozen=True, kw_only=True):
    """A job failed in a way that counts."""

    why: str
    probe: bool = False


class Success(Struct, frozen=True, kw_only=True):
    """A job succeeded."""

    probe: bool = False


class Hold(Struct, frozen=True, kw_only=True):
    """A worker wants to hold `count` probes in all; it gets as many of them as are free."""

    worker: str
    count: int


class Gone(Struct, frozen=True, kw_only=True):
    """The leases of these workers have ended, so their probes return."""

    workers: Collection[str]


class Enlist(Struct, frozen=True, kw_only=True):
    """These kinds use the breaker."""

    kinds: Collection[str]


Event = Failure | Success | Hold | Gone | Enlist


def react(
    status: BreakerStatus, events: Sequence[Event], *, rule: Rule, by: str, now: datetime
) -> BreakerStatus:
    """Return a breaker after events, in order; `now` is the store's time."""
    status = _cooled(status, rule, by, now)
    for event in events:
        status = _after(status, event, rule, by, now)
    return status


def force(
    status: BreakerStatus, to: Literal["open", "closed"] | None, *, by: str, now: datetime
) -> BreakerStatus:
    """Return a breaker that a person forces into a state, or (None) releases.

    A breaker that was forced open becomes half-open then, so that it is tried with care.
    """
    if status.forced == to:
        return status
    if to == "open":
        kept = replace(status, forced=to, until=None, opened_at=now, successes=0)
        return _change(kept, BreakerState.OPEN, "pinned open by hand", by, now)
    if to == "closed":
        return _close(replace(status, forced=to), "pinned closed by hand", by, now)
    free = replace(status, forced=None)
    if status.state is BreakerState.OPEN:
        return _change(free, BreakerState.HALF_OPEN, "back to automatic by hand", by, now)
    return _change(free, free.state, "back to automatic by hand", by, now)


def probe(status: BreakerStatus, *, by: str, now: datetime) -> BreakerStatus:
    """Return an open breaker as one whose cooldown is over, so that it is tried with a few jobs.

    A breaker that was forced open is released; one that is not open stays as it is.
    """
    if status.state is not BreakerState.OPEN:
        return status
    tried = replace(status, forced=None, until=None, successes=0)
    return _change(tried, BreakerState.HALF_OPEN, "probed by hand", by, now)


def _cooled(status: BreakerStatus, rule: Rule, by: str, now: datetime) -> BreakerStatus:
    if status.state is not BreakerState.OPEN or status.forced is not None:
        return status
    if status.until is None or status.until - now > rule.cooldown:
        # The clock was set back, or the rule has a shorter cooldown by now.
        return replace(status, until=now + rule.cooldown)
    if now < status.until:
        return status
    why = f"the cooldown of {human(rule.cooldown)} is over"
    return _change(replace(status, until=None, successes=0), BreakerState.HALF_OPEN, why, by, now)


def _after(
    status: BreakerStatus, event: Event, rule: Rule, by: str, now: datetime
) -> BreakerStatus:
    match event:
        case Failure():
            return _failed(status, event, rule, by, now)
        case Success(probe=probe):
            return _succeeded(status, rule, by, now, probe=probe)
        case Hold(worker=worker, count=count):
            return _hold(status, worker, count, rule)
        case Gone(workers=workers):
            left = {each: held for each, held in status.probes.items() if each not in workers}
            return replace(status, probes=left)
        case Enlist(kinds=kinds):
            return replace(status, kinds=tuple(sorted({*status.kinds, *kinds})))


def _failed(
    status: BreakerStatus, event: Failure, rule: Rule, by: str, now: datetime
) -> BreakerStatus:
    # A failure of a job that began before the breaker opened is no news.
    if status.forced is not None or status.state is BreakerState.OPEN:
        return status
    if status.state is BreakerState.HALF_OPEN:
        if not event.probe:
            return status
        return _open(status, f"a probe failed: {event.why}", rule, by, now)
    failures = status.failures + 1
    if failures < rule.failures:
        return replace(status, failures=failures)
    times = "1 failure" if failures == 1 else f"{failures} failures in a row, the last"
    return _open(replace(status, failures=failures), f"{times}: {event.why}", rule, by, now)


def _succeeded(
    status: BreakerStatus, rule: Rule, by: str, now: datetime, *, probe: bool
) -> BreakerStatus:
    if status.state is BreakerState.CLOSED:
        return replace(status, failures=0)
    if status.state is BreakerState.OPEN or not probe:
        return status
    successes = status.successes + 1
    if successes < rule.probes:
        return replace(status, successes=successes)
    why = "a probe succeeded" if successes == 1 else f"{successes} probes succeeded"
    return _close(status, why, by, now)


def _hold(status: BreakerStatus, worker: str, count: int, rule: Rule) -> BreakerStatus:
    """Let a worker hold the probes that others leave; more than before only while half-open."""
    held = status.probes.get(worker, 0)
    free = rule.probes - sum(status.probes.values())
    most = held + max(free, 0) if status.state is BreakerState.HALF_OPEN else held
    granted = min(count, most)
    left = {each: number for each, number in status.probes.items() if each != worker}
    return replace(status, probes=left | {worker: granted} if granted > 0 else left)


def _open(status: BreakerStatus, why: str, rule: Rule, by: str, now: datetime) -> BreakerStatus:
    # Probes that still run stay counted: the next half-open phase has fewer by them.
    opened = replace(status, opened_at=now, until=now + rule.cooldown, successes=0)
    return _change(opened, BreakerState.OPEN, why, by, now)


def _close(status: BreakerStatus, why: str, by: str, now: datetime) -> BreakerStatus:
    closed = replace(status, failures=0, successes=0, opened_at=None, until=None)
    return _change(closed, BreakerState.CLOSED, why, by, now)


def _change(
    status: BreakerStatus, new: BreakerState, why: str, by: str, now: datetime
) -> BreakerStatus:
    change = BreakerChange(at=now, old=status.state, new=new, why=storable(why, _WHY_LIMIT), by=by)
    return replace(
        status,
        state=new,
        changes=status.changes + 1,
        history=(*status.history, change)[-HISTORY:],
    )
