"""Owns the decisions how many slots a worker has, and how many processes a supervisor runs.

Slots grow in multiples while jobs wait, shrink gently once slots idle, and shrink at once when the
event loop or the CPU is overloaded. Undoing the last step takes a clearly higher or lower load than
the one that led to it, so that a steady load leads to a steady number. Measuring is done elsewhere.
"""

from __future__ import annotations

import math

from msgspec import Struct

from windlass.core.values.ranges import Bounds
from windlass.core.workers import WorkerPulse

LAG_HIGH, LAG_LOW = 0.1, 0.04
"""Lag of the event loop in seconds: too much, and little enough to add slots."""
CPU_HIGH, CPU_GOAL, CPU_LOW = 0.9, 0.8, 0.7
"""Shares of the CPU: used up, the most that a rise may lead to, and low enough to add slots."""
SLOW, QUICK = 0.1, 0.025
"""Seconds that a job takes, including its wait for the CPU: noticed by people, or by nobody.

Quick jobs use up the CPU too, but for them more slots mean larger claims and more jobs a second.
"""
_FACTOR = 2
_IDLE, _ROOMY = 0.6, 0.75
"""Shares in use: below the first there are too many slots; a fall leads to the second."""
_NOTHING = 0.05
"""The share of a process that its heartbeats and polls may take."""
_WARY = 0.75
"""The share of the last excessive number up to which slots may rise, until that is forgotten."""


class Pauses(Struct, frozen=True, kw_only=True):
    """Seconds: between decisions, before another rise, another relief, a fall; until strain is
    past."""

    look: float = 0.25
    rise: float = 1.0
    relief: float = 2.0
    fall: float = 10.0
    forget: float = 120.0


SLOTS_PAUSES = Pauses()
PROCESSES_PAUSES = Pauses(look=1.0, rise=10.0, relief=10.0, fall=60.0)
"""A process takes a second to start, and reports its load with its heartbeats only."""


class SlotsLoad(Struct, frozen=True, kw_only=True):
    """Measurements of a worker since its slots last changed."""

    waiting: bool
    """Whether every claim filled all free slots."""
    peak: int
    """The most jobs that ran at once, as far back as a fall looks."""
    service_time: float | None = None
    """Seconds that a job takes; None until one has ended."""
    throughput: float = 0.0
    """Jobs a second."""
    lag: float | None = None
    """Typical lag of the event loop in seconds; None until there are enough measurements."""
    cpu: float = 0.0
    """The used share of the one CPU that an event loop can have, or of all CPUs."""
    since_change: float = math.inf
    strained_at: int | None = None
    """The number of slots that last proved too many."""
    since_strain: float = math.inf


class ProcessesLoad(Struct, frozen=True, kw_only=True):
    """Load of the processes of a supervisor, by their pulses."""

    pulses: tuple[WorkerPulse, ...]
    slots: Bounds
    """The slots of each process."""
    cpus: int
    """How many CPUs the processes may use."""
    peak: float
    """The highest use, as a number of processes, as far back as a fall looks."""
    since_change: float = math.inf


class Decision(Struct, frozen=True, kw_only=True):
    """The number of slots or processes to have, and why."""

    target: int
    reason: str
    too_much: int | None = None
    """The number that proved too many, if that is the reason."""


def scale_slots(
    bounds: Bounds, present: int, load: SlotsLoad, pauses: Pauses = SLOTS_PAUSES
) -> Decision | None:
    """Decide how many slots a worker has; None changes nothing."""
    decision = (
        _into(bounds, present)
        or _relief(bounds, present, load, pauses)
        or _rise(bounds, present, load, pauses)
        or _fall(bounds, present, load, pauses)
    )
    return decision if decision is not None and decision.target != present else None


def _into(bounds: Bounds, present: int) -> Decision | None:
    if bounds.clamp(present) == present:
        return None
    return Decision(target=bounds.clamp(present), reason=f"{present} is not within {bounds}")


def _relief(bounds: Bounds, present: int, load: SlotsLoad, pauses: Pauses) -> Decision | None:
    # Half of the used slots: removing idle ones would be no relief.
    used = min(present, load.peak)
    strain = _strain(load, used)
    if strain is None or load.since_change < pauses.relief:
        return None
    return Decision(target=bounds.clamp(used // 2), reason=strain, too_much=used)


def _strain(load: SlotsLoad, used: int) -> str | None:
    if load.lag is not None and load.lag >= LAG_HIGH:
        return f"the event loop is late by {load.lag:.2g}s"
    takes = load.service_time
    # Two jobs are no crowd: one may compute while the other waits for I/O.
    if used <= 2 or load.cpu < CPU_HIGH or (takes is not None and takes < SLOW):
        return None
    duration = "long" if takes is None else f"{takes:.2g}s"
    return (
        f"{load.cpu:.0%} of the CPU is used and jobs take {duration}; fewer at a time finish sooner"
    )


def _rise(bounds: Bounds, present: int, load: SlotsLoad, pauses: Pauses) -> Decision | None:
    full = load.waiting and load.peak >= present
    if not full or load.since_change < pauses.rise or load.lag is None or load.lag >= LAG_LOW:
        return None
    target = _more(present, load)
    if load.strained_at is not None and load.since_strain < pauses.forget:
        target = min(target, int(load.strained_at * _WARY))
    if target <= present:
        return None
    return Decision(
        target=bounds.clamp(target), reason=f"jobs are waiting and all {present} slots are in use"
    )


def _more(present: int, load: SlotsLoad) -> int:
    if load.service_time is not None and load.service_time < QUICK:
        return present * _FACTOR
    if load.cpu >= CPU_LOW:
        return present
    target = int(present * min(_FACTOR, CPU_GOAL / max(load.cpu, 0.01)))
    if target == present and (present == 1 or load.cpu * (present + 1) / present < CPU_HIGH):
        target += 1
    return target


def _fall(bounds: Bounds, present: int, load: SlotsLoad, pauses: Pauses) -> Decision | None:
    if load.waiting or load.since_change < pauses.fall or load.peak > present * _IDLE:
        return None
    if load.peak == 0:
        return Decision(
            target=bounds.clamp(present // 2), reason=f"no job ran for {pauses.fall:g}s"
        )
    target = min(max(present * 3 // 4, math.ceil(load.peak / _ROOMY)), present)
    reason = f"no more than {load.peak} of {present} slots were in use for {pauses.fall:g}s"
    return Decision(target=bounds.clamp(target), reason=reason)


def scale_processes(
    bounds: Bounds, present: int, load: ProcessesLoad, pauses: Pauses = PROCESSES_PAUSES
) -> Decision | None:
    """Decide how many processes a supervisor runs; None changes nothing.

    Nothing is decided until every process has reported: the newest may already suffice.
    """
    if len(load.pulses) < present and bounds.clamp(present) == present:
        return None
    decision = (
        _into(bounds, present)
        or _fewer_than_crowd(bounds, present, load, pauses)
        or _more_processes(bounds, present, load, pauses)
        or _fewer_processes(bounds, present, load, pauses)
    )
    return decision if decision is not None and decision.target != present else None


def in_use(pulse: WorkerPulse) -> float:
    """Return the used share of a process, by its slots and threads, or by its CPU."""
    return max(pulse.busy, min(pulse.cpu, 1.0))


def _fewer_than_crowd(
    bounds: Bounds, present: int, load: ProcessesLoad, pauses: Pauses
) -> Decision | None:
    used = sum(pulse.cpu for pulse in load.pulses)
    if present <= load.cpus or used < load.cpus * 0.95 or load.since_change < pauses.relief:
        return None
    reason = f"{present} processes already use {load.cpus} CPUs; more would only share them"
    return Decision(target=bounds.clamp(load.cpus), reason=reason, too_much=present)


def _more_processes(
    bounds: Bounds, present: int, load: ProcessesLoad, pauses: Pauses
) -> Decision | None:
    used = sum(pulse.cpu for pulse in load.pulses)
    if load.since_change < pauses.rise or used >= load.cpus * CPU_GOAL:
        return None
    if not all(_at_its_end(each, load) for each in load.pulses):
        return None
    fit = max(load.cpus, int(present * load.cpus * CPU_HIGH / max(used, 0.01)))
    target = min(present + max(1, present // 2), fit)
    if target <= present:
        return None
    processes = "the process" if present == 1 else f"each of {present} processes"
    return Decision(
        target=bounds.clamp(target), reason=f"jobs are waiting and {processes} is fully used"
    )


def _at_its_end(pulse: WorkerPulse, load: ProcessesLoad) -> bool:
    """Return whether jobs wait that more slots of this process would not run."""
    return pulse.waiting and (
        (pulse.slots or 0) >= load.slots.most
        or pulse.busy >= 1
        or pulse.cpu >= CPU_LOW
        or pulse.loop_lag.total_seconds() >= LAG_LOW
    )


def _fewer_processes(
    bounds: Bounds, present: int, load: ProcessesLoad, pauses: Pauses
) -> Decision | None:
    if load.since_change < pauses.fall or any(pulse.waiting for pulse in load.pulses):
        return None
    if load.peak > (present - 1) * _IDLE:
        return None
    if load.peak <= present * _NOTHING:
        reason = f"{present} processes were nearly idle for {pauses.fall:g}s"
        return Decision(target=bounds.clamp(present // 2), reason=reason)
    reason = f"no more than {load.peak:.2g} of {present} processes were in use for {pauses.fall:g}s"
    return Decision(target=bounds.clamp(present - 1), reason=reason)
