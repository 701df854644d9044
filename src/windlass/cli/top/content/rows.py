"""Owns the cells of a row, for a queue, a kind, an error or a worker, and their colours."""

from __future__ import annotations

from datetime import datetime

from rich.text import Text

from windlass.cli.output.sparklines import bar, spark
from windlass.cli.top.content.cells import printable
from windlass.core.alarms import FAILING_SHARE, never_empties, waiting
from windlass.core.jobs.states import State
from windlass.core.stats.stats import ErrorFigures, KindFigures, QueueFigures, WorkerFigures
from windlass.core.values import figures

_BAD, _WARN, _DIM = "red", "yellow", "dim"
_STATES = {"running": "green", "draining": _WARN}
MINUTES_POINTS, HOUR_POINTS = 40, 12
"""The points of a graph of the last ten minutes, and of the last hour."""


def queue_cells(queue: QueueFigures) -> tuple[Text, ...]:
    """Return the cells of a queue, coloured by their urgency."""
    dead = queue.jobs.get(State.DEAD.value, 0)
    empty_in = _empty_in(queue)
    urgent = next((style for style in (_BAD, _WARN) if empty_in.style == style), "")
    return (
        Text(printable(queue.name), urgent),
        _jobs(queue, State.PENDING, urgent),
        _jobs(queue, State.RUNNING, ""),
        _jobs(queue, State.SCHEDULED, ""),
        _jobs(queue, State.DEAD, _BAD if dead else ""),
        Text(figures.span(queue.oldest), urgent if queue.oldest else _DIM),
        _rate(queue.arrival_rate),
        _rate(queue.service_rate),
        empty_in,
        Text(spark(queue.arrivals, MINUTES_POINTS), "cyan"),
    )


def _jobs(queue: QueueFigures, state: State, style: str) -> Text:
    number, capped = queue.jobs.get(state.value, 0), state.value in queue.capped
    return Text(figures.count(number, capped=capped), style if number else _DIM)


def _empty_in(queue: QueueFigures) -> Text:
    if queue.paused:
        return Text("paused", _WARN)
    if not waiting(queue):
        return Text(figures.UNKNOWN, _DIM)
    if not queue.workers:
        return Text("unserved", _BAD)
    if never_empties(queue):
        return Text("never", _BAD)
    return Text(
        figures.span(queue.seconds_to_empty), "" if queue.seconds_to_empty is not None else _DIM
    )


def kind_cells(kind: KindFigures, *, paused: bool) -> tuple[Text, ...]:
    failing = _failing(kind.error_rate)
    return (
        Text.assemble((f"{'paused ' if paused else ''}", _WARN), (printable(kind.name), failing)),
        _rate(kind.rate),
        Text(figures.share(kind.error_rate), failing if kind.error_rate else _DIM),
        Text(figures.count(kind.dead), _BAD if kind.dead else _DIM),
        *(_span(kind.durations.get(name)) for name in ("p50", "p95", "p99")),
        _span(kind.waits.get("p95")),
        Text(figures.rate(kind.busy), "" if kind.busy else _DIM),
        Text(spark(kind.history, HOUR_POINTS), "cyan"),
        Text(spark(kind.failures, HOUR_POINTS, most=max(kind.history, default=0)), failing or _DIM),
    )


def _failing(rate: float | None) -> str:
    if rate is None or rate < FAILING_SHARE:
        return ""
    return _BAD if rate >= 0.5 else _WARN


def error_cells(error: ErrorFigures, now: datetime) -> tuple[Text, ...]:
    return (
        Text(printable(error.error), _BAD if error.count else ""),
        Text(printable(error.kind)),
        Text(figures.count(error.count), "" if error.count else _DIM),
        Text(figures.count(error.dead, capped=error.capped), _BAD if error.dead else _DIM),
        Text(_since(error.first_seen, now), _DIM),
        Text(_since(error.last_seen, now)),
        Text(printable(error.group), _DIM),
        Text(spark(error.history, HOUR_POINTS), _BAD if error.count else _DIM),
    )


def worker_cells(worker: WorkerFigures, now: datetime) -> tuple[Text, ...]:
    used = worker.busy / worker.slots if worker.slots else 0.0
    pool = worker.pool
    full = pool is not None and pool.in_use >= pool.limit
    return (
        Text(printable(worker.id)),
        Text(printable(worker.state), _STATES.get(worker.state, _WARN)),
        Text(f"{worker.busy}/{worker.slots}"),
        gauge(used, 8),
        _pool_cell(worker.in_threads, worker.threads),
        _pool_cell(worker.in_isolated_processes, worker.isolated_processes),
        Text(figures.count(worker.processed)),
        Text(f"{worker.cpu:.2f}"),
        Text(figures.size(worker.memory), "" if worker.memory is not None else _DIM),
        Text(
            figures.UNKNOWN if pool is None else f"{pool.in_use}/{pool.limit}",
            _WARN if full else _DIM,
        ),
        Text(_since(worker.last_seen, now), _DIM),
        Text(printable(f"{worker.host}:{worker.pid}"), _DIM),
        Text(printable(", ".join(worker.queues) or "all"), "" if worker.queues else _DIM),
    )


def _pool_cell(used: int, size: int | None) -> Text:
    if size is None:
        return Text(figures.UNKNOWN, _DIM)
    return Text(f"{used}/{size}", _WARN if used >= size else "" if used else _DIM)


def gauge(used: float, width: int) -> Text:
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
