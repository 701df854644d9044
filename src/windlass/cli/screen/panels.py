"""Owns the four panels: what a row of each says, and which rows come first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.text import Text

from windlass.cli.screen.grid import Field
from windlass.cli.screen.rows import (
    HOUR,
    SPARK,
    error_cells,
    kind_cells,
    queue_cells,
    waiting,
    worker_cells,
)
from windlass.core.pauses import Pauses
from windlass.core.stats import ErrorFigures, KindFigures, QueueFigures, Stats, WorkerFigures

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


def _queues(looked: Looked) -> list[Row]:
    return [
        Row(key=each.name, figures=each, cells=queue_cells(each), found_by=each.name)
        for each in sorted(looked.stats.queues, key=lambda each: (-waiting(each), each.name))
    ]


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
            cells=kind_cells(each, paused=each.name in looked.pauses.kinds),
            found_by=each.name,
        )
        for each in known
    ]


def _errors(looked: Looked) -> list[Row]:
    known = sorted(looked.stats.errors, key=lambda each: (-each.count, -each.dead, each.group))
    return [
        Row(
            key=f"{each.group}/{each.kind}",
            figures=each,
            cells=error_cells(each, looked.stats.at),
            found_by=f"{each.error} {each.kind} {each.group}",
        )
        for each in known
    ]


def _workers(looked: Looked) -> list[Row]:
    return [
        Row(
            key=each.id,
            figures=each,
            cells=worker_cells(each, looked.stats.at),
            found_by=f"{each.id} {each.host} {' '.join(each.queues)}",
        )
        for each in sorted(looked.stats.workers, key=lambda each: each.id)
    ]


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
            Field(name="10 min", width=8, most=SPARK, rank=6, graph=True),
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
            Field(name="hour", width=HOUR, rank=5, graph=True),
            Field(name="failures", width=HOUR, rank=9, graph=True),
        ),
        rows=_kinds,
        empty="no run is recorded of the last hour; workers record every 15 s",
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
            Field(name="hour", width=HOUR, rank=5, graph=True),
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
