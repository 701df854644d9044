"""Owns what a row says: the cells of a queue, a kind, an error, a worker, and their colours."""

from __future__ import annotations

from datetime import datetime

from rich.text import Text

from windlass.cli.screen import figures
from windlass.cli.screen.cells import tame
from windlass.cli.sparks import bar, spark
from windlass.core.capacity import NEVER
from windlass.core.states import State
from windlass.core.stats import ErrorFigures, KindFigures, QueueFigures, Stats, WorkerFigures

FAILING = 0.05
"""The share of failed runs from which on somebody should look."""
_BAD, _WARN, _DIM = "red", "yellow", "dim"
_STATES = {"running": "green", "draining": _WARN}
SPARK, HOUR = 40, 12
"""How many points there are of the last ten minutes, and of the last hour."""


def waiting(queue: QueueFigures) -> int:
    """Return how many jobs of a queue could run now."""
    return queue.jobs.get(State.PENDING.value, 0)


def does_not_drain(queue: QueueFigures) -> bool:
    """Say whether more and more jobs wait, although workers take them."""
    return bool(queue.workers) and not queue.paused and is_never(queue)


def is_never(figures_: QueueFigures | Stats) -> bool:
    """Say whether it is known that something does not drain, and not only unknown when."""
    return NEVER in figures_.unknown.get("drain_seconds", "")


# -- queues ----------------------------------------------------------------------------------------


def queue_cells(queue: QueueFigures) -> tuple[Text, ...]:
    """Tell about a queue; what is urgent about it colours it."""
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
        Text(spark(queue.arrivals, SPARK), "cyan"),
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


def kind_cells(kind: KindFigures, *, paused: bool) -> tuple[Text, ...]:
    """Tell about a kind."""
    failing = _failing(kind.error_rate)
    return (
        Text.assemble((f"{'paused ' if paused else ''}", _WARN), (tame(kind.name), failing)),
        _rate(kind.rate),
        Text(figures.share(kind.error_rate), failing if kind.error_rate else _DIM),
        Text(figures.count(kind.dead), _BAD if kind.dead else _DIM),
        *(_span(kind.durations.get(name)) for name in ("p50", "p95", "p99")),
        _span(kind.waits.get("p95")),
        Text(figures.rate(kind.busy), "" if kind.busy else _DIM),
        Text(spark(kind.history, HOUR), "cyan"),
        Text(spark(kind.failures, HOUR, most=max(kind.history, default=0)), failing or _DIM),
    )


def _failing(rate: float | None) -> str:
    if rate is None or rate < FAILING:
        return ""
    return _BAD if rate >= 0.5 else _WARN


# -- errors ----------------------------------------------------------------------------------------


def error_cells(error: ErrorFigures, now: datetime) -> tuple[Text, ...]:
    """Tell about an error."""
    return (
        Text(tame(error.error), _BAD if error.count else ""),
        Text(tame(error.kind)),
        Text(figures.count(error.count), "" if error.count else _DIM),
        Text(figures.count(error.dead), _BAD if error.dead else _DIM),
        Text(_since(error.first_seen, now), _DIM),
        Text(_since(error.last_seen, now)),
        Text(tame(error.group), _DIM),
        Text(spark(error.history, HOUR), _BAD if error.count else _DIM),
    )


# -- workers ---------------------------------------------------------------------------------------


def worker_cells(worker: WorkerFigures, now: datetime) -> tuple[Text, ...]:
    """Tell about a worker."""
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
