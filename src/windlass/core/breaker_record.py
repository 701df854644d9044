"""Owns the record of a circuit breaker, and how it changes: `react` to events, `force` by hand."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from windlass.core.breaker import Rule
from windlass.core.durations import human
from windlass.core.job import Json
from windlass.core.text import storable

RECORD = "breaker:"
"""How the names of the records begin that hold breakers."""
HISTORY = 50
"""How many changes a breaker remembers, the latest."""
_WHY_LIMIT = 300


class BreakerState(StrEnum):
    """Closed lets everything start, open nothing, half-open a few to see whether it works again."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class BreakerChange(Struct, frozen=True, kw_only=True):
    """One change of a breaker: when, from which state to which, why, and who noticed or did it."""

    at: datetime
    old: BreakerState = msgspec.field(name="from")
    new: BreakerState = msgspec.field(name="to")
    why: str
    by: str


class BreakerStatus(Struct, frozen=True, kw_only=True):
    """How it stands with a breaker."""

    name: str
    state: BreakerState = BreakerState.CLOSED
    failures: int = 0
    """How many there were in a row."""
    opened_at: datetime | None = None
    until: datetime | None = None
    """When its cooldown is over; None unless it is open, and when only a person can close it."""
    successes: int = 0
    """How many probes in a row succeeded since it is half-open."""
    probes: Mapping[str, int] = {}
    """How many jobs each worker may start, or has started, while it is half-open."""
    forced: Literal["open", "closed"] | None = None
    """In which state a person keeps it."""
    kinds: tuple[str, ...] = ()
    """The kinds that go by it, as far as workers have told."""
    changes: int = 0
    """How many there were in all."""
    history: tuple[BreakerChange, ...] = ()
    """The latest changes, the oldest first."""

    @property
    def why(self) -> str:
        """Why it is as it is; empty if it has never been otherwise."""
        return self.history[-1].why if self.history else ""


def read_status(name: str, record: Json | None) -> BreakerStatus:
    """Return what a record says; none, and one that cannot be read, is that of a closed breaker."""
    if record is not None:
        try:
            return replace(msgspec.convert({**record, "name": name}, BreakerStatus), name=name)
        except msgspec.ValidationError:
            pass  # By another release, or by hand. A breaker that nobody can read must not block.
    return BreakerStatus(name=name)


def record_of(status: BreakerStatus) -> Json:
    """Return the record of a breaker."""
    record: Json = msgspec.to_builtins(status)
    del record["name"]
    return record


# -- what happens to a breaker -----------------------------------------------------------------


class Failure(Struct, frozen=True, kw_only=True):
    """A job failed in a way that counts."""

    why: str
    probe: bool = False


class Success(Struct, frozen=True, kw_only=True):
    """A job succeeded."""

    probe: bool = False


class Hold(Struct, frozen=True, kw_only=True):
    """A worker wants to hold so many probes in all; it gets as many of them as there are."""

    worker: str
    count: int


class Gone(Struct, frozen=True, kw_only=True):
    """The leases of these workers have ended, so their probes come back."""

    workers: Collection[str]


class Enlist(Struct, frozen=True, kw_only=True):
    """These kinds go by the breaker."""

    kinds: Collection[str]


Event = Failure | Success | Hold | Gone | Enlist


def react(
    status: BreakerStatus, events: Sequence[Event], *, rule: Rule, by: str, now: datetime
) -> BreakerStatus:
    """Return a breaker after what happened to it, in order; `now` is the store's time."""
    status = _cooled(status, rule, by, now)
    for event in events:
        status = _after(status, event, rule, by, now)
    return status


def force(
    status: BreakerStatus, to: Literal["open", "closed"] | None, *, by: str, now: datetime
) -> BreakerStatus:
    """Return a breaker as a person keeps it from now on, or (None) lets it go by itself again.

    One that was kept open is half-open then, so that it is tried with care.
    """
    if status.forced == to:
        return status
    if to == "open":
        kept = replace(status, forced=to, until=None, opened_at=now, successes=0)
        return _change(kept, BreakerState.OPEN, "kept open by hand", by, now)
    if to == "closed":
        return _close(replace(status, forced=to), "kept closed by hand", by, now)
    free = replace(status, forced=None)
    if status.state is BreakerState.OPEN:
        return _change(free, BreakerState.HALF_OPEN, "back to automatic by hand", by, now)
    return _change(free, free.state, "back to automatic by hand", by, now)


def _cooled(status: BreakerStatus, rule: Rule, by: str, now: datetime) -> BreakerStatus:
    """Return it half-open, if its cooldown is over."""
    if status.state is not BreakerState.OPEN or status.forced is not None:
        return status
    if status.until is None or status.until - now > rule.cooldown:
        # The clock was set back, or the rule is a shorter one by now: nobody waits for longer.
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
    """Count a failure. One that began before the breaker opened tells nothing new afterwards."""
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
    """Let a worker hold what others leave, and more than it has only while there are any."""
    held = status.probes.get(worker, 0)
    free = rule.probes - sum(status.probes.values())
    most = held + max(free, 0) if status.state is BreakerState.HALF_OPEN else held
    granted = min(count, most)
    left = {each: number for each, number in status.probes.items() if each != worker}
    return replace(status, probes=left | {worker: granted} if granted > 0 else left)


def _open(status: BreakerStatus, why: str, rule: Rule, by: str, now: datetime) -> BreakerStatus:
    # The probes that still run are held on: those of the next time are fewer by them.
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
