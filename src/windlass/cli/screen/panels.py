"""Owns the four panels: what a row of each says, and which rows come first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.text import Text

from windlass.cli.screen import figures
from windlass.cli.screen.cells import tame
from windlass.cli.screen.grid import Field
from windlass.cli.screen.spark import bar, spark
from windlass.core.pauses import Pauses
from windlass.core.states import State
from windlass.core.stats import ErrorFigures, KindFigures, QueueFigures, Stats, WorkerFigures

FAILING = 0.05
"""The share of failed runs from which on somebody should look."""
_BAD, _WARN, _DIM = "red", "yellow", "dim"
_STATES = {"running": "green", "draining": _WARN}
_SPARK, _HOUR = 40, 12
"""How many points there are of the last ten minutes, and of the last hour."""

Figures = QueueFigures | KindFigures | ErrorFigures | WorkerFigures


@dataclass(frozen=True, kw_only=True)
class Looked:
    """What the store said when somebody last looked."""

    stats: Stats
    pauses: Pauses
    location: str = ""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of a panel: what it is about, and its cells, as many as the panel has fields."""

    key: str
    figures: Figures
    cells: tuple[Text, ...]
    found_by: str
    """What a filter is looked for in."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One of the four tables."""

    name: str
    fields: tuple[Field, ...]
    rows: Callable[[Looked], list[Row]]
    empty: str


def waiting(queue: QueueFigures) -> int:
    """Return how many jobs of a queue could run now."""
    return queue.jobs.get(State.PENDING.value, 0)


def does_not_drain(queue: QueueFigures) -> bool:
    """Say whether more and more jobs wait, although workers take them."""
    return bool(queue.workers) and not queue.paused and is_never(queue)


def is_never(figures_: QueueFigures | Stats) -> bool:
    """Say whether it is known that something does not drain, and not only unknown when."""
    return "does not drain" in figures_.unknown.get("drain_seconds", "")


# -- queues ----------------------------------------------------------------------------------------


def _queues(looked: Looked) -> list[Row]:
    return [
        Row(key=each.name, figures=each, cells=_queue(each), found_by=each.name)
        for each in sorted(looked.stats.queues, key=lambda each: (-waiting(each), each.name))
    ]


def _queue(queue: QueueFigures) -> tuple[Text, ...]:
    dead = queue.jobs.get(State.DEAD.value, 0)
    drains = _drains(queue)
    urgent = next((style for style in (_BAD, _WARN) if drains.style == style), "")
    return (
        Text(tame(queue.name), urgent),
        _jobs(queue, State.PENDING, urgent),
        _jobs(queue, State.RUNNING, ""),
        _jobs(queue, State.SCHEDULED, ""),
        _jobs(queue, State.DEAD, _BAD if dead else ""),
        Text(figures.span(queue.oldest), urgent if queue.oldest else _DIM),
        _rate(queue.arrival_rate),
        _rate(queue.service_rate),
        drains,
        Text(spark(queue.arrivals, _SPARK), "cyan"),
    )


def _jobs(queue: QueueFigures, state: State, style: str) -> Text:
    number, capped = queue.jobs.get(state.value, 0), state.value in queue.capped
    return Text(figures.count(number, capped=capped), style if number else _DIM)


def _drains(queue: QueueFigures) -> Text:
    """Say when nothing waits any more, or what keeps that from happening."""
    if queue.paused:
        return Text("paused", _WARN)
    if not waiting(queue):
        return Text(figures.UNKNOWN, _DIM)
    if not queue.workers:
        return Text("unserved", _BAD)
    if does_not_drain(queue):
        return Text("never", _BAD)
    return Text(figures.span(queue.drain_seconds), "" if queue.drain_seconds is not None else _DIM)


# -- kinds -----------------------------------------------------------------------------------------


def _kinds(looked: Looked) -> list[Row]:
    # One that is paused may not have run for long, and somebody wants to resume it.
    ran = {each.name for each in looked.stats.kinds}
    held = [_not_run(name) for name in looked.pauses.kinds - ran]
    known = sorted(
        (*looked.stats.kinds, *held), key=lambda each: (-each.busy, -each.runs, each.name)
    )
    return [
        Row(
            key=each.name,
            figures=each,
            cells=_kind(each, paused=each.name in looked.pauses.kinds),
            found_by=each.name,
        )
        for each in known
    ]


def _kind(kind: KindFigures, *, paused: bool) -> tuple[Text, ...]:
    failing = _failing(kind.error_rate)
    return (
        Text.assemble((f"{'paused ' if paused else ''}", _WARN), (tame(kind.name), failing)),
        _rate(kind.rate),
        Text(figures.share(kind.error_rate), failing if kind.error_rate else _DIM),
        Text(figures.count(kind.dead), _BAD if kind.dead else _DIM),
        *(_span(kind.durations.get(name)) for name in ("p50", "p95", "p99")),
        _span(kind.waits.get("p95")),
        Text(figures.rate(kind.busy), "" if kind.busy else _DIM),
        Text(spark(kind.history, _HOUR), "cyan"),
        Text(spark(kind.failures, _HOUR, most=max(kind.history, default=0)), failing or _DIM),
    )


def _not_run(name: str) -> KindFigures:
    return KindFigures(
        name=name,
        runs=0,
        completed=0,
        failed=0,
        retried=0,
        dead=0,
        cancelled=0,
        error_rate=None,
        rate=0.0,
        durations={},
        waits={},
        busy=0.0,
        history=(),
        failures=(),
    )


def _failing(rate: float | None) -> str:
    if rate is None or rate < FAILING:
        return ""
    return _BAD if rate >= 0.5 else _WARN


# -- errors ----------------------------------------------------------------------------------------


def _errors(looked: Looked) -> list[Row]:
    known = sorted(looked.stats.errors, key=lambda each: (-each.count, -each.dead, each.group))
    return [
        Row(
            key=f"{each.group}/{each.kind}",
            figures=each,
            cells=_error(each, looked.stats.at),
            found_by=f"{each.error} {each.kind} {each.group}",
        )
        for each in known
    ]


def _error(error: ErrorFigures, now: datetime) -> tuple[Text, ...]:
    return (
        Text(tame(error.error), _BAD if error.count else ""),
        Text(tame(error.kind)),
        Text(figures.count(error.count), "" if error.count else _DIM),
        Text(figures.count(error.dead), _BAD if error.dead else _DIM),
        Text(_since(error.first_seen, now), _DIM),
        Text(_since(error.last_seen, now)),
        Text(tame(error.group), _DIM),
        Text(spark(error.history, _HOUR), _BAD if error.count else _DIM),
    )


# -- workers ---------------------------------------------------------------------------------------


def _workers(looked: Looked) -> list[Row]:
    return [
        Row(
            key=each.id,
            figures=each,
            cells=_worker(each, looked.stats.at),
            found_by=f"{each.id} {each.host} {' '.join(each.queues)}",
        )
        for each in sorted(looked.stats.workers, key=lambda each: each.id)
    ]


def _worker(worker: WorkerFigures, now: datetime) -> tuple[Text, ...]:
    used = worker.busy / worker.slots if worker.slots else 0.0
    pool = worker.pool
    full = pool is not None and pool.in_use >= pool.limit
    return (
        Text(tame(worker.id)),
        Text(tame(worker.state), _STATES.get(worker.state, _WARN)),
        Text(f"{worker.busy}/{worker.slots}"),
        gauge(used, 8),
        Text(figures.count(worker.processed)),
        Text(f"{worker.cpu:.2f}"),
        Text(figures.size(worker.memory), "" if worker.memory is not None else _DIM),
        Text(
            figures.UNKNOWN if pool is None else f"{pool.in_use}/{pool.limit}",
            _WARN if full else _DIM,
        ),
        Text(_since(worker.last_seen, now), _DIM),
        Text(tame(f"{worker.host}:{worker.pid}"), _DIM),
        Text(tame(", ".join(worker.queues) or "all"), "" if worker.queues else _DIM),
    )


def gauge(used: float, width: int) -> Text:
    """Draw how much of something is used."""
    full, free = bar(used, width)
    return Text.assemble((full, _WARN if used >= 0.95 else "green"), (free, _DIM))


def _rate(number: float | None) -> Text:
    return Text(figures.rate(number), "" if number else _DIM)


def _span(seconds: float | None) -> Text:
    return Text(figures.span(seconds), _DIM if seconds is None else "")


def _since(moment: datetime | None, now: datetime) -> str:
    if moment is None:
        return figures.UNKNOWN
    return figures.span(max(round((now - moment).total_seconds()), 0))


def _number(name: str, width: int, rank: int = 0) -> Field:
    return Field(name=name, width=width, rank=rank, number=True)


PANELS: Sequence[Panel] = (
    Panel(
        name="queues",
        fields=(
            Field(name="queues", width=12, most=28),
            _number("waiting", 7),
            _number("run", 5, 4),
            _number("later", 6, 8),
            _number("dead", 5, 3),
            _number("oldest", 6),
            _number("in/s", 5, 2),
            _number("out/s", 5, 2),
            _number("drains", 8),
            Field(name="10 min", width=8, most=_SPARK, rank=6, graph=True),
        ),
        rows=_queues,
        empty="no queue has jobs",
    ),
    Panel(
        name="kinds",
        fields=(
            Field(name="kinds", width=12, most=28),
            _number("runs/s", 6),
            _number("failed", 6),
            _number("dead", 5, 6),
            _number("p50", 6, 2),
            _number("p95", 6),
            _number("p99", 6, 7),
            _number("waits", 6, 3),
            _number("slots", 5, 4),
            Field(name="hour", width=_HOUR, rank=5, graph=True),
            Field(name="failures", width=_HOUR, rank=9, graph=True),
        ),
        rows=_kinds,
        empty="no job has run in the last hour",
    ),
    Panel(
        name="errors",
        fields=(
            Field(name="errors", width=22, most=200),
            Field(name="kind", width=12, rank=2),
            _number("fails", 5),
            _number("dead", 5),
            _number("first", 6, 7),
            _number("last", 6, 3),
            Field(name="group", width=10, rank=8),
            Field(name="hour", width=_HOUR, rank=5, graph=True),
        ),
        rows=_errors,
        empty="no job has failed in the last hour, and none is dead",
    ),
    Panel(
        name="workers",
        fields=(
            Field(name="workers", width=14, most=28),
            Field(name="state", width=8, rank=3),
            _number("busy", 7),
            Field(name="", width=8, rank=4),
            _number("done", 6, 2),
            _number("cpu", 5),
            _number("memory", 6, 2),
            _number("pool", 5, 5),
            _number("seen", 5, 6),
            Field(name="process", width=18, rank=9),
            Field(name="queues", width=12, most=60, rank=7),
        ),
        rows=_workers,
        empty="no worker runs; start one: windlass worker module:attribute",
    ),
)
QUEUES, KINDS, ERRORS, WORKERS = range(4)
"""Where each panel is among them."""
