"""Owns the figures of a queue, and their sums over several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import zip_longest

from msgspec import Struct

from windlass.core.claims.room import Pool
from windlass.core.jobs.job import Lane
from windlass.core.jobs.states import State
from windlass.core.metrics.exposition import OTHER
from windlass.core.policies.pauses import Pauses
from windlass.core.stats.capacity import (
    NEVER,
    NO_RATES,
    UNCOUNTED,
    UNSAMPLED,
    UNTOLD,
    Load,
    seconds_to_empty,
    slots_needed,
)
from windlass.core.stats.cluster_sample import EVERY, QueueSample, Sample, is_counted, is_draining
from windlass.core.stats.kind_history import KindStats
from windlass.core.stats.kind_stats import Work, work_in
from windlass.core.stats.live_counts import Trend
from windlass.core.stats.queue_capacity import free_in, pools_of, room_in
from windlass.core.stats.sample_history import History, Line, curve, is_explained, recent_rate
from windlass.core.values.text import listed
from windlass.core.workers import WorkerRecord

_PENDING = State.PENDING.value
_RUNNING = State.RUNNING.value
_NAMED_QUEUES = 3
_SAMPLED = 4 * EVERY
"""Seconds within which two samples should exist."""


class QueueFigures(Struct, frozen=True, kw_only=True):
    """A queue: its jobs, who serves it, how fast it fills and empties."""

    name: str
    jobs: Mapping[str, int]
    """Jobs by state at this moment; of finished ones only the dead are counted.

    Where a live count was cut off, the count of the last sample, if that went further.
    """
    capped: frozenset[str]
    """The states with more jobs than were counted."""
    oldest: float | None
    """Seconds for which the oldest pending job had been due; None: none was pending."""
    paused: bool
    workers: int
    unserved: int = 0
    """Lanes with pending jobs that no live worker would run, paused kinds and keys aside."""
    slots: int
    """How many of its jobs the workers that serve it can run at once.

    Where they need threads or isolated processes, that is no more than there are of those.
    """
    arrival_rate: float | None
    """Jobs per second that came within the last two minutes before the last sample."""
    service_rate: float | None
    """Jobs a second that left it for good."""
    estimated: bool
    """Whether the arrival rate is an estimate, since there are too many jobs to count them."""
    seconds_to_empty: float | None
    """Seconds until nothing waits, at the present rates."""
    slots_needed: float | None
    """How many slots keep up with the arrivals."""
    threads_needed: float | None = None
    isolated_processes_needed: float | None = None
    """How many of those are of jobs that need a thread, or a child process, besides."""
    arrivals: tuple[float, ...]
    """The rates of up to the last ten minutes, oldest first, a point each 15 seconds.

    Only the busiest queues have them, and `services`; an unknown rate is 0.
    """
    services: tuple[float, ...]
    unknown: Mapping[str, str]
    """Why a figure is None, by its name."""


class Total(Struct, frozen=True, kw_only=True):
    """Figures over several queues."""

    arrival_rate: float | None
    service_rate: float | None
    seconds_to_empty: float | None
    slots_needed: float | None
    threads_needed: float | None
    isolated_processes_needed: float | None
    unknown: Mapping[str, str]


class QueueScene(Struct, frozen=True, kw_only=True):
    """The data from which the figures of queues are made."""

    now: datetime
    sample: Sample
    counted: bool
    """Whether no worker sampled lately, so that no rate is known."""
    trend: Trend
    history: History
    records: Mapping[str, KindStats]
    """The records of kinds, by their names."""
    alive: Sequence[WorkerRecord]
    pauses: Pauses


def queue_of(name: str, scene: QueueScene) -> QueueFigures:
    """Make the figures of a queue that was sampled."""
    queue, line = scene.sample.queues[name], scene.history.queues.get(name) or Line()
    serving = [each for each in scene.alive if serves_queue(each, name)]
    work = work_in(name, scene.records, scene.now, pools_of(scene.alive))
    load = _load(name, scene, serving, work)
    empty_in, why_unknown = seconds_to_empty(load)
    slots, why_no_slots = slots_needed(load)
    return QueueFigures(
        name=name,
        jobs=queue.jobs,
        capped=frozenset(queue.capped),
        oldest=load.oldest,
        paused=load.paused,
        workers=len(serving),
        unserved=queue.unserved,
        slots=round(load.slots),
        arrival_rate=load.arrival,
        service_rate=load.service,
        estimated=queue.estimated,
        seconds_to_empty=empty_in,
        slots_needed=slots,
        threads_needed=_part(slots, work, Pool.THREADS),
        isolated_processes_needed=_part(slots, work, Pool.ISOLATED),
        arrivals=_curve(scene, line.arrivals),
        services=_curve(scene, line.services),
        unknown=_reasons(
            arrival_rate=(load.arrival, "" if load.arrival is not None else load.unrated),
            service_rate=(load.service, "" if load.service is not None else load.unrated),
            seconds_to_empty=(empty_in, why_unknown),
            slots_needed=(slots, why_no_slots),
        ),
    )


def _part(slots: float | None, work: Work, pool: Pool) -> float | None:
    """Return the share of the needed slots that also needs a slot of this pool."""
    return None if slots is None else slots * work.shares.get(pool, 0.0)


def _load(name: str, scene: QueueScene, serving: Sequence[WorkerRecord], work: Work) -> Load:
    queue, rates = scene.sample.queues[name], scene.history.rates(name)
    waiting = queue.jobs.get(_PENDING, 0)
    unexplained = not scene.counted and not is_explained(
        scene.history, rates.arrivals, scene.now.timestamp()
    )
    return Load(
        waiting=waiting,
        capped=_PENDING in queue.capped,
        # A store may still believe that something waits in a lane that is empty.
        oldest=_oldest(queue) if waiting else None,
        paused=queue.paused if name == OTHER else name in scene.pauses.queues,
        slots=sum(room_in(each, name, work.shares) for each in serving),
        running=queue.jobs.get(_RUNNING, 0),
        idle=sum(free_in(each, name, work.shares) for each in serving),
        unrated=_why_no_rates(scene, queue, unexplained=unexplained),
        arrival=None if unexplained else _rate(scene, rates.arrivals, queue.arrival_rate),
        service=_rate(scene, rates.services, queue.service_rate),
        again=work.again,
        growth=scene.trend.growth(name),
        work=work.each,
    )


def _oldest(queue: QueueSample) -> float | None:
    # Paused jobs count, too: either way the oldest has waited.
    waits = [each for each in (queue.oldest, queue.held) if each is not None]
    return max(waits, default=None)


def _why_no_rates(scene: QueueScene, queue: QueueSample, *, unexplained: bool) -> str:
    if unexplained:
        return UNTOLD
    if scene.counted and any(scene.now - each.started_at > _SAMPLED for each in scene.alive):
        return UNSAMPLED
    is_known = not scene.counted and queue.service_rate is not None
    return UNCOUNTED if is_known and not is_counted(queue) else NO_RATES


def total_of(queues: Sequence[QueueFigures], *, counted: bool) -> Total:
    """Add up the needs of queues; the time until empty is that of the last one that is not paused.

    Queues without a figure are left out of a sum, and `unknown` names them.
    """
    arrival = _sum("arrival_rate", queues, counted=counted)
    service = _sum("service_rate", queues, counted=counted)
    slots = _sum("slots_needed", queues, counted=counted)
    threads = _sum("threads_needed", queues, counted=counted)
    isolated_processes = _sum("isolated_processes_needed", queues, counted=counted)
    empty_in = _empty_in(queues)
    return Total(
        arrival_rate=arrival[0],
        service_rate=service[0],
        slots_needed=slots[0],
        threads_needed=threads[0],
        isolated_processes_needed=isolated_processes[0],
        seconds_to_empty=empty_in[0],
        unknown=_reasons(
            arrival_rate=arrival,
            service_rate=service,
            slots_needed=slots,
            seconds_to_empty=empty_in,
        ),
    )


def _empty_in(queues: Sequence[QueueFigures]) -> tuple[float | None, str]:
    times = [each.seconds_to_empty for each in queues if not each.paused]
    known = [each for each in times if each is not None]
    if len(known) < len(times):
        return None, _why("seconds_to_empty", [each for each in queues if not each.paused])
    if not any(known) and any(each.seconds_to_empty is None for each in queues):
        return None, "all waiting jobs are paused"
    return max(known, default=0.0), ""


def serves_queue(worker: WorkerRecord, queue: str, *, draining: bool = False) -> bool:
    """Return whether a worker serves a queue, or did until it began to drain."""
    return (draining or not is_draining(worker)) and any(
        worker.info.serves(Lane(queue, kind)) for kind in worker.info.kinds[:1]
    )


def added(curves: Iterable[Sequence[float]]) -> tuple[float, ...]:
    """Add curves up that end at the same moment."""
    backwards = zip_longest(*(reversed(each) for each in curves), fillvalue=0.0)
    return tuple(sum(each) for each in backwards)[::-1]


def _rate(scene: QueueScene, line: Sequence[float | None], latest: float | None) -> float | None:
    if scene.counted:
        return None
    lately = recent_rate(scene.history, line, scene.now.timestamp())
    return latest if lately is None else lately


def _curve(scene: QueueScene, line: Sequence[float | None]) -> tuple[float, ...]:
    return () if scene.counted else curve(scene.history, line, scene.now.timestamp())


def _sum(figure: str, queues: Sequence[QueueFigures], *, counted: bool) -> tuple[float | None, str]:
    values = {each.name: getattr(each, figure) for each in queues}
    known = [value for value in values.values() if value is not None]
    if counted or (queues and not known):
        return None, _why(figure, queues)
    missing = [name for name, value in values.items() if value is None]
    return float(
        sum(known)
    ), f"at least this much, without {listed(missing, _NAMED_QUEUES)}" if missing else ""


def _why(figure: str, queues: Sequence[QueueFigures]) -> str:
    reasons = {each.name: each.unknown[figure] for each in queues if figure in each.unknown}
    for same in (NO_RATES, UNSAMPLED):
        if set(reasons.values()) == {same}:
            return same
    if not reasons:
        return NO_RATES
    name = min(reasons, key=lambda each: (NEVER not in reasons[each], reasons[each] == NO_RATES))
    return f"{name}: {reasons[name]}"


def _reasons(**figures: tuple[float | None, str]) -> dict[str, str]:
    return {name: why for name, (value, why) in figures.items() if value is None or why}
