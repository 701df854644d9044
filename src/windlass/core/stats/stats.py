"""Owns the figures that people see: queues, kinds, errors, workers, and what the load needs.

`stats_of` makes them from the store's records. An unknown figure is None, and `unknown` says why,
and how to make it known. Displays decide nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from msgspec import Struct, field

from windlass.core.jobs.job import Lane
from windlass.core.jobs.queries import ErrorGroup
from windlass.core.payloads.redaction import Redaction
from windlass.core.policies.breaker_record import BreakerState
from windlass.core.policies.pauses import Pauses
from windlass.core.records import Json
from windlass.core.stats.cluster_sample import DRAINING, Sample, breakers_in
from windlass.core.stats.depths import Connections
from windlass.core.stats.error_stats import MOST, ErrorFigures, errors_of
from windlass.core.stats.kind_history import RECORD, KindStats, read_stats
from windlass.core.stats.kind_stats import KindFigures, kind_of
from windlass.core.stats.live_counts import Trend
from windlass.core.stats.queue_capacity import slots_of
from windlass.core.stats.queue_stats import (
    QueueFigures,
    QueueScene,
    Total,
    added,
    queue_of,
    serves_queue,
    total_of,
)
from windlass.core.stats.sample_history import History, curve, recent_rate
from windlass.core.stats.shortage import Shortage, shortages
from windlass.core.workers import WorkerRecord

__all__ = [
    "ErrorFigures",
    "KindFigures",
    "QueueFigures",
    "Shortage",
    "Stats",
    "StatsFacts",
    "WorkerFigures",
    "stats_of",
]

_NO_WORKER = "no worker is alive; start one: windlass worker module:attribute"
_ALL_DRAIN = "all workers are draining; start one: windlass worker module:attribute"


class WorkerFigures(Struct, frozen=True, kw_only=True):
    """A live worker: what it does, and what it uses."""

    id: str
    host: str
    pid: int
    state: str
    slots: int
    busy: int
    """Jobs that it runs."""
    threads: int | None = None
    in_threads: int = 0
    """Threads for `def` handlers, and how many of them are in use; None: not reported."""
    isolated_processes: int | None = None
    in_isolated_processes: int = 0
    """Child processes for isolated handlers, and how many of them are in use."""
    processed: int
    cpu: float
    """CPUs in use by its process, on the average since its last heartbeat."""
    memory: int | None
    """Bytes; None: not reported."""
    pool: Connections | None
    """Connections to the database; None: its store has no pool, or not reported."""
    queues: tuple[str, ...]
    """The queues that it serves; empty: all."""
    last_seen: datetime


class Stats(Struct, frozen=True, kw_only=True):
    """The whole picture, or what it was narrowed to; its sums are those of what is in it."""

    at: datetime
    """By the store's clock."""
    count_age: float
    """Seconds since the jobs of queues were counted: 0 unless a live count took too long."""
    sample_age: float | None
    """Seconds since a worker sampled: the age of rates, and of the figures that rest on them.

    None: no worker sampled lately, and no rate is known.
    """
    sampled_at: datetime | None
    """The time of that sample, by the store's clock."""
    queues: tuple[QueueFigures, ...]
    kinds: tuple[KindFigures, ...]
    errors: tuple[ErrorFigures, ...]
    workers: tuple[WorkerFigures, ...]
    slots: int
    """The slots of the workers that take jobs."""
    busy: int
    """Jobs that run in them."""
    utilisation: float | None
    """The share of the slots that is in use; None: there is no slot."""
    threads: int = 0
    in_threads: int = 0
    isolated_processes: int = 0
    in_isolated_processes: int = 0
    """Threads and child processes of the workers that take jobs, and how many are in use."""
    short: tuple[Shortage, ...] = ()
    """Pools that are all in use while jobs wait for them, each with its remedy."""
    arrival_rate: float | None
    service_rate: float | None
    estimated: bool
    seconds_to_empty: float | None
    """When the last queue is empty, but for those that are paused."""
    slots_needed: float | None
    threads_needed: float | None = None
    isolated_processes_needed: float | None = None
    """How many of the slots that are needed are of jobs that need a thread, or a child."""
    arrivals: tuple[float, ...]
    services: tuple[float, ...]
    breakers: tuple[str, ...] = ()
    """The names of the breakers that are open."""
    half_open: tuple[str, ...] = ()
    """The names of the half-open breakers."""
    errors_searched_to: datetime | None = None
    """Jobs that died then or before were not looked at for their errors; None: all were."""
    unknown: Mapping[str, str]
    """Why a figure is None, by its name, or which queues a sum is without."""


class StatsFacts(Struct, frozen=True, kw_only=True):
    """The data from which the figures are made, as the store returned it."""

    now: datetime
    sample: Sample
    """The counts, and the rates of what a worker sampled last."""
    sampled_at: datetime | None
    """When a worker sampled; None: none did lately, and the sample has no rates."""
    trend: Trend = field(default_factory=Trend)
    history: History
    kinds: Mapping[str, Json]
    groups: Sequence[ErrorGroup]
    groups_searched_to: datetime | None = None
    """How far back dead jobs were grouped; None: all of them were."""
    workers: Sequence[WorkerRecord]
    pauses: Pauses
    redaction: Redaction
    waiting: Sequence[Lane] = ()
    """The lanes with jobs that are due."""

    @property
    def counted(self) -> bool:
        """Whether there are counts alone, since no worker sampled lately."""
        return self.sampled_at is None


def stats_of(
    facts: StatsFacts,
    *,
    queue: str | None = None,
    kind: str | None = None,
    among: Collection[str] | None = None,
    most_errors: int = MOST,
) -> Stats:
    """Make the figures of everything, or of one queue, or of one kind.

    A queue comes with the kinds of which jobs have left it, and a kind with the queues in which its
    jobs wait or that they have left; each of them with all of its figures. `among` limits all of it
    to these queues: errors are then those of the groups alone, since a kind records its own for all
    queues together.
    """
    records = {name.removeprefix(RECORD): read_stats(each) for name, each in facts.kinds.items()}
    wanted = _Wanted(queue, kind, among)
    chosen = {
        name: each for name, each in records.items() if wanted.kinds(name) and wanted.one(each.left)
    }
    waiting = [
        lane for lane in facts.waiting if wanted.queues(lane.queue) and wanted.kinds(lane.kind)
    ]
    homes = {name for each in chosen.values() for name in each.left}
    homes.update(lane.queue for lane in waiting)
    alive = [each for each in facts.workers if each.alive]
    names = [
        name
        for name in sorted(facts.sample.queues)
        if wanted.queues(name) and (kind is None or name in homes)
    ]
    groups = [
        each
        for each in facts.groups
        if wanted.kinds(each.kind) and (queue is None or among is not None or each.kind in chosen)
    ]
    since = min((each.started_at for each in facts.workers), default=None)
    kinds = [kind_of(name, each, facts.now, since) for name, each in chosen.items()]
    scene = _scene(facts, records, alive)
    return _stats(
        facts,
        whole=wanted == _Wanted(),
        queues=tuple(queue_of(name, scene) for name in names),
        kinds=tuple(sorted(kinds, key=lambda each: (-each.busy, -each.runs, each.name))),
        errors=_errors(facts, {} if among is not None else chosen, groups, most_errors),
        workers=tuple(_worker(each, among) for each in alive if _is_for(each, wanted)),
        short=shortages(alive, waiting, facts.pauses),
    )


class _Wanted(Struct, frozen=True):
    """What the figures are narrowed to: a queue, a kind, some queues; None: all."""

    queue: str | None = None
    kind: str | None = None
    among: Collection[str] | None = None

    def queues(self, name: str) -> bool:
        return self.queue in (None, name) and (self.among is None or name in self.among)

    def kinds(self, name: str) -> bool:
        return self.kind in (None, name)

    def one(self, names: Collection[str]) -> bool:
        """Return whether one of these queues is wanted; if all queues are, without asking."""
        return (self.queue is None and self.among is None) or any(map(self.queues, names))


def _scene(
    facts: StatsFacts, records: Mapping[str, KindStats], alive: Sequence[WorkerRecord]
) -> QueueScene:
    return QueueScene(
        now=facts.now,
        sample=facts.sample,
        counted=facts.counted,
        trend=facts.trend,
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
    short: tuple[Shortage, ...],
) -> Stats:
    taking = [each for each in workers if each.state != DRAINING]
    slots, busy = sum(each.slots for each in taking), sum(each.busy for each in taking)
    # One sample has no rate, and without any queue none of them says so.
    total = total_of(queues, counted=facts.counted or not (queues or len(facts.history.at) > 1))
    unknown = dict(total.unknown)
    arrival_rate, service_rate = _rates(facts, total, whole=whole)
    arrivals, services = _curves(facts, queues, whole=whole)
    if not slots:
        unknown["utilisation"] = _ALL_DRAIN if workers else _NO_WORKER
    return Stats(
        at=facts.now,
        count_age=max(facts.now.timestamp() - facts.sample.at, 0.0),
        sample_age=_age(facts.sampled_at, facts.now),
        sampled_at=facts.sampled_at,
        queues=queues,
        kinds=kinds,
        errors=errors,
        workers=workers,
        slots=slots,
        busy=busy,
        utilisation=busy / slots if slots else None,
        threads=sum(each.threads or 0 for each in taking),
        in_threads=sum(each.in_threads for each in taking),
        isolated_processes=sum(each.isolated_processes or 0 for each in taking),
        in_isolated_processes=sum(each.in_isolated_processes for each in taking),
        short=short,
        arrival_rate=arrival_rate,
        service_rate=service_rate,
        estimated=any(each.estimated for each in queues),
        seconds_to_empty=total.seconds_to_empty,
        slots_needed=total.slots_needed,
        threads_needed=total.threads_needed,
        isolated_processes_needed=total.isolated_processes_needed,
        arrivals=arrivals,
        services=services,
        breakers=breakers_in(facts.sample, BreakerState.OPEN),
        half_open=breakers_in(facts.sample, BreakerState.HALF_OPEN),
        errors_searched_to=facts.groups_searched_to,
        unknown=unknown,
    )


def _age(moment: datetime | None, now: datetime) -> float | None:
    return None if moment is None else max((now - moment).total_seconds(), 0.0)


def _rates(facts: StatsFacts, total: Total, *, whole: bool) -> tuple[float | None, float | None]:
    arrival, service = total.arrival_rate, total.service_rate
    if whole and "arrival_rate" not in total.unknown:
        arrival = _lately(facts, facts.history.total.arrivals, arrival)
    if whole and "service_rate" not in total.unknown:
        service = _lately(facts, facts.history.total.services, service)
    return arrival, service


def _lately(
    facts: StatsFacts, rates: Sequence[float | None], added_up: float | None
) -> float | None:
    # A sum of the latest rates would lose what one of the queues reports late.
    lately = recent_rate(facts.history, rates, facts.now.timestamp())
    return added_up if lately is None else lately


def _curves(
    facts: StatsFacts, queues: Sequence[QueueFigures], *, whole: bool
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if whole:
        history = facts.history.total
        return _curve(facts, history.arrivals), _curve(facts, history.services)
    return added(each.arrivals for each in queues), added(each.services for each in queues)


def _curve(facts: StatsFacts, rates: Sequence[float | None]) -> tuple[float, ...]:
    return () if facts.counted else curve(facts.history, rates, facts.now.timestamp())


def _errors(
    facts: StatsFacts, records: Mapping[str, KindStats], groups: Iterable[ErrorGroup], most: int
) -> tuple[ErrorFigures, ...]:
    is_capped = facts.groups_searched_to is not None
    return errors_of(records, groups, facts.now, facts.redaction, capped=is_capped, most=most)


def _worker(record: WorkerRecord, among: Collection[str] | None) -> WorkerFigures:
    info, pulse = record.info, record.pulse
    return WorkerFigures(
        id=info.id,
        host=info.host,
        pid=info.pid,
        state=pulse.state,
        slots=slots_of(record),
        busy=pulse.running,
        threads=info.threads,
        in_threads=pulse.in_threads,
        isolated_processes=info.isolated_processes,
        in_isolated_processes=pulse.in_isolated_processes,
        processed=pulse.processed,
        cpu=pulse.cpu,
        memory=pulse.memory,
        pool=pulse.pool,
        queues=tuple(each for each in info.queues if among is None or each in among),
        last_seen=record.last_seen,
    )


def _is_for(worker: WorkerRecord, wanted: _Wanted) -> bool:
    queues = wanted.among if wanted.queue is None else (wanted.queue,)
    return (wanted.kind is None or wanted.kind in worker.info.kinds) and (
        queues is None
        or any(serves_queue(worker, each, draining=True) for each in filter(wanted.queues, queues))
    )
