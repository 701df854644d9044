"""Owns the figures of a queue, and what those of several come to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest

from windlass.core.capacity import (
    NEVER,
    NO_RATES,
    UNCOUNTED,
    UNSAMPLED,
    UNTOLD,
    Load,
    drain_seconds,
    slots_needed,
)
from windlass.core.job import Lane, WorkerRecord
from windlass.core.kind_figures import work_in
from windlass.core.kind_stats import KindStats
from windlass.core.metrics import OTHER
from windlass.core.pauses import Pauses
from windlass.core.sample import EVERY, QueueSample, Sample, is_counted, is_draining
from windlass.core.sample_history import History, Line, curve, is_explained, recent_rate
from windlass.core.states import State

_PENDING = State.PENDING.value
_RUNNING = State.RUNNING.value
_NAMED = 3
_SAMPLED = 4 * EVERY
"""After which somebody should have sampled twice."""


@dataclass(frozen=True, kw_only=True)
class QueueFigures:
    """A queue: its jobs, who serves it, how fast it fills and empties."""

    name: str
    jobs: Mapping[str, int]
    """How many are in which state; of finished ones only the dead are counted."""
    capped: frozenset[str]
    """The states in which there are more than were counted."""
    oldest: float | None
    """Seconds for which the oldest pending job had been due; None: none was pending."""
    paused: bool
    workers: int
    unserved: int = 0
    """Lanes with pending jobs that no live worker would run, paused kinds and keys aside."""
    slots: int
    """How many of its jobs the workers that serve it can run at once."""
    arrival_rate: float | None
    """Jobs a second that came within the last two minutes."""
    service_rate: float | None
    """Jobs a second that left it for good."""
    estimated: bool
    """Whether the arrival rate is an estimate, since there are too many jobs to count them."""
    drain_seconds: float | None
    """After how long nothing waits any more, if all goes on as it does."""
    slots_needed: float | None
    """How many slots keep up with what comes."""
    arrivals: tuple[float, ...]
    """The rates of up to the last ten minutes, oldest first, a point each 15 seconds.

    Only the busiest queues have them, and `services`; what was not known then is 0.
    """
    services: tuple[float, ...]
    unknown: Mapping[str, str]
    """Why a figure is None, by its name."""


@dataclass(frozen=True, kw_only=True)
class Total:
    """What the figures of several queues come to."""

    arrival_rate: float | None
    service_rate: float | None
    drain_seconds: float | None
    slots_needed: float | None
    unknown: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class QueueScene:
    """All that the figures of queues are made of."""

    now: datetime
    sample: Sample
    counted: bool
    """Whether the sample is not from a worker, so that it has no rates."""
    history: History
    records: Sequence[KindStats]
    alive: Sequence[WorkerRecord]
    pauses: Pauses


def queue_of(name: str, scene: QueueScene) -> QueueFigures:
    """Make the figures of a queue that was sampled."""
    queue, line = scene.sample.queues[name], scene.history.queues.get(name) or Line()
    serving = [each for each in scene.alive if serves_queue(each, name)]
    load = _load(name, scene, serving)
    drain, why_no_drain = drain_seconds(load)
    slots, why_no_slots = slots_needed(load)
    return QueueFigures(
        name=name,
        jobs=queue.jobs,
        capped=frozenset(queue.capped),
        oldest=load.oldest,
        paused=load.paused,
        workers=len(serving),
        unserved=queue.unserved,
        slots=load.slots,
        arrival_rate=load.arrival,
        service_rate=load.service,
        estimated=queue.estimated,
        drain_seconds=drain,
        slots_needed=slots,
        arrivals=_curve(scene, line.arrivals),
        services=_curve(scene, line.services),
        unknown=_reasons(
            arrival_rate=(load.arrival, "" if load.arrival is not None else load.unrated),
            service_rate=(load.service, "" if load.service is not None else load.unrated),
            drain_seconds=(drain, why_no_drain),
            slots_needed=(slots, why_no_slots),
        ),
    )


def _load(name: str, scene: QueueScene, serving: Sequence[WorkerRecord]) -> Load:
    queue, rates = scene.sample.queues[name], scene.history.rates(name)
    waiting = queue.jobs.get(_PENDING, 0)
    untold = not scene.counted and not is_explained(
        scene.history, rates.arrivals, scene.now.timestamp()
    )
    work = work_in(name, scene.records, scene.now)
    return Load(
        waiting=waiting,
        capped=_PENDING in queue.capped,
        # A store may still believe that something waits in a lane that is empty.
        oldest=_oldest(queue) if waiting else None,
        paused=queue.paused if name == OTHER else name in scene.pauses.queues,
        slots=sum(slots_of(each, name) for each in serving),
        running=queue.jobs.get(_RUNNING, 0),
        idle=sum(max(slots_of(each, name) - each.pulse.running, 0) for each in serving),
        unrated=_why_no_rates(scene, queue, untold=untold),
        arrival=None if untold else _rate(scene, rates.arrivals, queue.arrival_rate),
        service=_rate(scene, rates.services, queue.service_rate),
        again=work.again,
        work=work.each,
    )


def _oldest(queue: QueueSample) -> float | None:
    """Return how long the oldest waits, paused or not: either way it has not just come."""
    waits = [each for each in (queue.oldest, queue.held) if each is not None]
    return max(waits, default=None)


def _why_no_rates(scene: QueueScene, queue: QueueSample, *, untold: bool) -> str:
    if untold:
        return UNTOLD
    if scene.counted and any(scene.now - each.started_at > _SAMPLED for each in scene.alive):
        return UNSAMPLED
    is_told = not scene.counted and queue.service_rate is not None
    return UNCOUNTED if is_told and not is_counted(queue) else NO_RATES


def total_of(queues: Sequence[QueueFigures], *, counted: bool) -> Total:
    """Add up what queues need; all have drained when the last one has that is not paused.

    What is not known of some queues is left out of a sum, and `unknown` says of which.
    """
    arrival = _sum("arrival_rate", queues, counted=counted)
    service = _sum("service_rate", queues, counted=counted)
    slots = _sum("slots_needed", queues, counted=counted)
    drain = _drain(queues)
    return Total(
        arrival_rate=arrival[0],
        service_rate=service[0],
        slots_needed=slots[0],
        drain_seconds=drain[0],
        unknown=_reasons(
            arrival_rate=arrival,
            service_rate=service,
            slots_needed=slots,
            drain_seconds=drain,
        ),
    )


def _drain(queues: Sequence[QueueFigures]) -> tuple[float | None, str]:
    drains = [each.drain_seconds for each in queues if not each.paused]
    known = [each for each in drains if each is not None]
    if len(known) < len(drains):
        return None, _why("drain_seconds", [each for each in queues if not each.paused])
    if not any(known) and any(each.drain_seconds is None for each in queues):
        return None, "all that waits is paused"
    return max(known, default=0.0), ""


def serves_queue(worker: WorkerRecord, queue: str, *, draining: bool = False) -> bool:
    """Say whether a worker takes anything from a queue, or did until it was to drain."""
    return (draining or not is_draining(worker)) and any(
        worker.info.serves(Lane(queue, kind)) for kind in worker.info.kinds[:1]
    )


def slots_of(worker: WorkerRecord, queue: str | None = None) -> int:
    """Return how many jobs a worker runs at once, or how many of one queue."""
    info = worker.info
    slots = worker.pulse.slots or info.least_slots or info.slots
    return slots if queue is None else min(slots, info.queue_slots.get(queue, slots))


def added(curves: Iterable[Sequence[float]]) -> tuple[float, ...]:
    """Add curves up that end at the same moment."""
    backwards = zip_longest(*(reversed(each) for each in curves), fillvalue=0.0)
    return tuple(sum(each) for each in backwards)[::-1]


def _rate(scene: QueueScene, line: Sequence[float | None], told: float | None) -> float | None:
    if scene.counted:
        return None
    lately = recent_rate(scene.history, line, scene.now.timestamp())
    return told if lately is None else lately


def _curve(scene: QueueScene, line: Sequence[float | None]) -> tuple[float, ...]:
    return () if scene.counted else curve(scene.history, line, scene.now.timestamp())


def _sum(figure: str, queues: Sequence[QueueFigures], *, counted: bool) -> tuple[float | None, str]:
    values = {each.name: getattr(each, figure) for each in queues}
    known = [value for value in values.values() if value is not None]
    if counted or (queues and not known):
        return None, _why(figure, queues)
    missing = [name for name, value in values.items() if value is None]
    return float(sum(known)), f"at least so much: without {_named(missing)}" if missing else ""


def _why(figure: str, queues: Sequence[QueueFigures]) -> str:
    """Say why the figure of all is not known: because that of one is not, the worst of them."""
    reasons = {each.name: each.unknown[figure] for each in queues if figure in each.unknown}
    for same in (NO_RATES, UNSAMPLED):
        if set(reasons.values()) == {same}:
            return same
    if not reasons:
        return NO_RATES
    name = min(reasons, key=lambda each: (NEVER not in reasons[each], reasons[each] == NO_RATES))
    return f"{name}: {reasons[name]}"


def _named(queues: Sequence[str]) -> str:
    more = len(queues) - _NAMED
    return ", ".join(queues[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _reasons(**figures: tuple[float | None, str]) -> dict[str, str]:
    return {name: why for name, (value, why) in figures.items() if value is None or why}
