"""Owns the four panels: their columns, their rows, and the order of those."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from windlass.app.snapshot import Snapshot
from windlass.cli.top.content.columns import Column
from windlass.cli.top.content.rows import (
    HOUR_POINTS,
    MINUTES_POINTS,
    error_cells,
    kind_cells,
    queue_cells,
    worker_cells,
)
from windlass.core.alarms import waiting
from windlass.core.stats.stats import ErrorFigures, KindFigures, QueueFigures, WorkerFigures

Figures = QueueFigures | KindFigures | ErrorFigures | WorkerFigures


@dataclass(frozen=True)
class Row:
    """A line of a panel: its subject, and a cell for each column."""

    key: str
    figures: Figures
    cells: tuple[Text, ...]
    searchable: str
    """The text that a filter has to be in."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One of the four tables."""

    name: str
    columns: tuple[Column, ...]
    rows: Callable[[Snapshot], list[Row]]
    empty: str


def _queues(snapshot: Snapshot) -> list[Row]:
    queues = sorted(snapshot.stats.queues, key=lambda queue: (-waiting(queue), queue.name))
    return [Row(queue.name, queue, queue_cells(queue), queue.name) for queue in queues]


def _kinds(snapshot: Snapshot) -> list[Row]:
    # A paused kind may not have run for long, and is shown so that it can be resumed.
    paused = snapshot.pauses.kinds
    held = [_not_run(name) for name in paused - {kind.name for kind in snapshot.stats.kinds}]
    kinds = sorted(
        (*snapshot.stats.kinds, *held), key=lambda kind: (-kind.busy, -kind.runs, kind.name)
    )
    return [
        Row(kind.name, kind, kind_cells(kind, paused=kind.name in paused), kind.name)
        for kind in kinds
    ]


def _errors(snapshot: Snapshot) -> list[Row]:
    errors = sorted(
        snapshot.stats.errors, key=lambda error: (-error.count, -error.dead, error.group)
    )
    return [
        Row(
            f"{error.group}/{error.kind}",
            error,
            error_cells(error, snapshot.stats.at),
            f"{error.error} {error.kind} {error.group}",
        )
        for error in errors
    ]


def _workers(snapshot: Snapshot) -> list[Row]:
    return [
        Row(
            worker.id,
            worker,
            worker_cells(worker, snapshot.stats.at),
            f"{worker.id} {worker.host} {' '.join(worker.queues)}",
        )
        for worker in sorted(snapshot.stats.workers, key=lambda worker: worker.id)
    ]


def _not_run(name: str) -> KindFigures:
    counts = ("runs", "completed", "failed", "retried", "dead", "cancelled")
    empty: dict[str, Any] = dict.fromkeys(counts, 0)
    empty |= {"durations": {}, "waits": {}, "history": (), "failures": ()}
    return KindFigures(name=name, error_rate=None, rate=0.0, busy=0.0, **empty)


def _number(name: str, width: int, rank: int = 0) -> Column:
    return Column(name=name, width=width, rank=rank, number=True)


PANELS: Sequence[Panel] = (
    Panel(
        name="queues",
        columns=(
            Column(name="queues", width=12, max_width=28),
            _number("waiting", 7),
            _number("run", 5, 4),
            _number("later", 6, 8),
            _number("dead", 5, 3),
            _number("oldest", 6),
            _number("in/s", 5, 2),
            _number("out/s", 5, 2),
            _number("empty in", 8),
            Column(name="10 min", width=8, max_width=MINUTES_POINTS, rank=6, graph=True),
        ),
        rows=_queues,
        empty="no queue has jobs",
    ),
    Panel(
        name="kinds",
        columns=(
            Column(name="kinds", width=12, max_width=28),
            _number("runs/s", 6),
            _number("failed", 6),
            _number("dead", 5, 6),
            _number("p50", 6, 2),
            _number("p95", 6),
            _number("p99", 6, 7),
            _number("waits", 6, 3),
            _number("slots", 5, 4),
            Column(name="hour", width=HOUR_POINTS, rank=5, graph=True),
            Column(name="failures", width=HOUR_POINTS, rank=9, graph=True),
        ),
        rows=_kinds,
        empty="no runs in the last hour; workers record them every 15 s",
    ),
    Panel(
        name="errors",
        columns=(
            Column(name="errors", width=22, max_width=200),
            Column(name="kind", width=12, rank=2),
            _number("fails", 5),
            _number("dead", 5),
            _number("first", 6, 7),
            _number("last", 6, 3),
            Column(name="group", width=10, rank=8),
            Column(name="hour", width=HOUR_POINTS, rank=5, graph=True),
        ),
        rows=_errors,
        empty="no job has failed in the last hour, and none are dead",
    ),
    Panel(
        name="workers",
        columns=(
            Column(name="workers", width=14, max_width=28),
            Column(name="state", width=8, rank=3),
            _number("busy", 7),
            Column(name="", width=8, rank=4),
            _number("threads", 7, 1),
            _number("isolated", 8, 4),
            _number("done", 6, 2),
            _number("cpu", 5),
            _number("memory", 6, 2),
            _number("pool", 5, 5),
            _number("seen", 5, 6),
            Column(name="process", width=18, rank=9),
            Column(name="queues", width=12, max_width=60, rank=7),
        ),
        rows=_workers,
        empty="no worker is running; start one: windlass worker module:attribute",
    ),
)
QUEUES, KINDS, ERRORS, WORKERS = range(4)
"""The index of each panel."""
