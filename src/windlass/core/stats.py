"""Owns the figures that people look at: queues, kinds, errors, workers, and what the load needs.

`stats_of` makes them of what the store recorded. What is not known is None, and `unknown` says why,
and what makes it known. Whoever draws them decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from windlass.core.breaker_record import BreakerState
from windlass.core.error_figures import ErrorFigures, errors_of
from windlass.core.job import Connections, ErrorGroup, Json, WorkerRecord
from windlass.core.kind_figures import KindFigures, kind_of
from windlass.core.kind_stats import RECORD, KindStats, read_stats
from windlass.core.pauses import Pauses
from windlass.core.queue_figures import (
    QueueFigures,
    QueueScene,
    added,
    queue_of,
    serves_queue,
    slots_of,
    total_of,
)
from windlass.core.redaction import Redaction
from windlass.core.sample import DRAINING, Sample, breakers_in
from windlass.core.sample_history import History, curve, recent_rate

__all__ = [
    "ErrorFigures",
    "KindFigures",
    "QueueFigures",
    "Stats",
    "StatsFacts",
    "WorkerFigures",
    "stats_of",
]

_NO_WORKER = "no worker is alive; start one: windlass worker module:attribute"
_ALL_DRAIN = "all workers drain; start one: windlass worker module:attribute"


@dataclass(frozen=True, kw_only=True)
class WorkerFigures:
    """A live worker: what it does, and what it uses."""

    id: str
    host: str
    pid: int
    state: str
    slots: int
    busy: int
    """Jobs that it runs."""
    processed: int
    cpu: float
    """CPUs in use by its process, on the average since its last heartbeat."""
    memory: int | None
    """Bytes; None: it has not told."""
    pool: Connections | None
    """Connections to the database; None: its store has no pool, or it has not told."""
    queues: tuple[str, ...]
    """Those that it serves; none named: all."""
    last_seen: datetime


@dataclass(frozen=True, kw_only=True)
class Stats:
    """The whole picture, or what it was narrowed to; its sums are those of what is in it."""

    at: datetime
    """By the store's clock."""
    sample_age: float | None
    """How many seconds ago a worker counted, which is what queues are told of.

    None: no worker does, so that whoever asked has counted, and no rate is known.
    """
    queues: tuple[QueueFigures, ...]
    kinds: tuple[KindFigures, ...]
    errors: tuple[ErrorFigures, ...]
    workers: tuple[WorkerFigures, ...]
    slots: int
    """Those of the workers that take jobs."""
    busy: int
    """Jobs that run in them."""
    utilisation: float | None
    """The share of the slots that is in use; None: there is no slot."""
    arrival_rate: float | None
    service_rate: float | None
    estimated: bool
    drain_seconds: float | None
    """When the last queue has drained, but for those that are paused."""
    slots_needed: float | None
    arrivals: tuple[float, ...]
    services: tuple[float, ...]
    breakers: tuple[str, ...] = ()
    """The names of the breakers that are open."""
    half_open: tuple[str, ...] = ()
    """The names of those that are being tried with a few jobs."""
    unknown: Mapping[str, str]
    """Why a figure is None, by its name, or which queues a sum is without."""


@dataclass(frozen=True, kw_only=True)
class StatsFacts:
    """All that the figures are made of, as the store told it."""

    now: datetime
    sample: Sample
    counted: bool
    """Whether whoever asks has made the sample just now, because no worker did lately."""
    history: History
    kinds: Mapping[str, Json]
    groups: Sequence[ErrorGroup]
    workers: Sequence[WorkerRecord]
    pauses: Pauses
    redaction: Redaction


def stats_of(facts: StatsFacts, *, queue: str | None = None, kind: str | None = None) -> Stats:
    """Make the figures of all there is, or of one queue, or of one kind.

    With a queue go the kinds of which jobs have left it, and with a kind the queues that its jobs
    have left; each of them is told of as a whole.
    """
    records = {name.removeprefix(RECORD): read_stats(each) for name, each in facts.kinds.items()}
    chosen = {
        name: each
        for name, each in records.items()
        if kind in (None, name) and (queue is None or queue in each.left)
    }
    homes = {name for each in chosen.values() for name in each.left}
    alive = [each for each in facts.workers if each.alive]
    names = [
        name
        for name in sorted(facts.sample.queues)
        if queue in (None, name) and (kind is None or name in homes)
    ]
    groups = [
        each
        for each in facts.groups
        if kind in (None, each.kind) and (queue is None or each.kind in chosen)
    ]
    since = min((each.started_at for each in facts.workers), default=facts.now)
    kinds = [kind_of(name, each, facts.now, since) for name, each in chosen.items()]
    scene = _scene(facts, list(records.values()), alive)
    return _stats(
        facts,
        whole=queue is None and kind is None,
        queues=tuple(queue_of(name, scene) for name in names),
        kinds=tuple(sorted(kinds, key=lambda each: (-each.busy, -each.runs, each.name))),
        errors=errors_of(chosen, groups, facts.now, facts.redaction),
        workers=tuple(_worker(each) for each in alive if _is_for(each, queue, kind)),
    )


def _scene(
    facts: StatsFacts, records: Sequence[KindStats], alive: Sequence[WorkerRecord]
) -> QueueScene:
    return QueueScene(
        now=facts.now,
        sample=facts.sample,
        counted=facts.counted,
        history=facts.history,
        records=records,
        alive=alive,
        pauses=facts.pauses,
    )


def _stats(
    facts: StatsFacts,
    *,
    whole: bool,
    queues: tuple[QueueFigures, ...],
    kinds: tuple[KindFigures, ...],
    errors: tuple[ErrorFigures, ...],
    workers: tuple[WorkerFigures, ...],
) -> Stats:
    taking = [each for each in workers if each.state != DRAINING]
    slots, busy = sum(each.slots for each in taking), sum(each.busy for each in taking)
    total = total_of(queues, counted=facts.counted)
    unknown = dict(total.unknown)
    arrival, service = total.arrival_rate, total.service_rate
    if whole and "arrival_rate" not in unknown:
        arrival = _lately(facts, facts.history.total.arrivals, arrival)
    if whole and "service_rate" not in unknown:
        service = _lately(facts, facts.history.total.services, service)
    if not slots:
        unknown["utilisation"] = _ALL_DRAIN if workers else _NO_WORKER
    return Stats(
        at=facts.now,
        sample_age=None if facts.counted else max(facts.now.timestamp() - facts.sample.at, 0.0),
        queues=queues,
        kinds=kinds,
        errors=errors,
        workers=workers,
        slots=slots,
        busy=busy,
        utilisation=busy / slots if slots else None,
        arrival_rate=arrival,
        service_rate=service,
        estimated=any(each.estimated for each in queues),
        drain_seconds=total.drain_seconds,
        slots_needed=total.slots_needed,
        arrivals=_curve(facts, facts.history.total.arrivals)
        if whole
        else added(each.arrivals for each in queues),
        services=_curve(facts, facts.history.total.services)
        if whole
        else added(each.services for each in queues),
        breakers=breakers_in(facts.sample, BreakerState.OPEN),
        half_open=breakers_in(facts.sample, BreakerState.HALF_OPEN),
        unknown=unknown,
    )


def _lately(
    facts: StatsFacts, rates: Sequence[float | None], added_up: float | None
) -> float | None:
    """Tell the rate of all queues together: in a sum, what one lacks for being late is lost."""
    lately = recent_rate(facts.history, rates, facts.now.timestamp())
    return added_up if lately is None else lately


def _curve(facts: StatsFacts, rates: Sequence[float | None]) -> tuple[float, ...]:
    return () if facts.counted else curve(facts.history, rates, facts.now.timestamp())


def _worker(record: WorkerRecord) -> WorkerFigures:
    info, pulse = record.info, record.pulse
    return WorkerFigures(
        id=info.id,
        host=info.host,
        pid=info.pid,
        state=pulse.state,
        slots=slots_of(record),
        busy=pulse.running,
        processed=pulse.processed,
        cpu=pulse.cpu,
        memory=pulse.memory,
        pool=pulse.pool,
        queues=info.queues,
        last_seen=record.last_seen,
    )


def _is_for(worker: WorkerRecord, queue: str | None, kind: str | None) -> bool:
    return (kind is None or kind in worker.info.kinds) and (
        queue is None or serves_queue(worker, queue, draining=True)
    )
