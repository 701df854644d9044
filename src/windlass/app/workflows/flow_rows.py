"""Owns the jobs of a flow as people and scripts see them: those that are alike in one row."""

from __future__ import annotations

from collections import Counter
from itertools import islice

from msgspec import Struct, field

from windlass.app.workflows.flow_view import FORGOTTEN, UNDER_WAY, WAITING, FlowView
from windlass.core.documents import Facts, iso
from windlass.core.jobs.states import State
from windlass.core.workflows.flow_graph import Chart, Stage, ids_of

WORDS = (
    State.DEAD.value,
    State.RUNNING.value,
    UNDER_WAY,
    State.PENDING.value,
    State.SCHEDULED.value,
    WAITING,
    State.CANCELLED.value,
    State.COMPLETED.value,
    FORGOTTEN,
)
"""States by their importance to people: a row shows the first that it has."""
MAX_PARENTS = 3
_MAX_IDS = 3
"""How many of the jobs of a row are named by their ids."""


class Row(Struct, kw_only=True):
    """Jobs of one name and kind at one depth, and their states."""

    name: str
    kind: str
    depth: int
    counts: Counter[str] = field(default_factory=Counter)
    numbers: dict[str, list[int]] = field(default_factory=dict)
    """The first jobs in each state, by their numbers."""
    after: dict[str, None] = field(default_factory=dict)

    @property
    def jobs(self) -> int:
        return sum(self.counts.values())

    @property
    def word(self) -> str:
        """The most important state of its jobs."""
        return next(word for word in WORDS if self.counts[word])

    def add(self, view: FlowView, first: int, end: int) -> None:
        """Add jobs with consecutive numbers."""
        counts = view.counts(first, end)
        for word in counts:
            known = self.numbers.setdefault(word, [])
            of_word = (number for number in range(first, end) if view.words[number] == word)
            known += islice(of_word, _MAX_IDS - len(known))
        self.counts += counts


def rows_of(view: FlowView) -> list[Row]:
    """Gather jobs that are alike, in the order of their depths."""
    chart = view.chart
    found: dict[tuple[int, str, str], Row] = {}
    for stage, depth in zip(chart.jobs, chart.depths, strict=True):
        row = _row(found, stage.name, stage.kind, depth)
        row.add(view, stage.first, stage.end)
        if len(row.after) <= MAX_PARENTS:
            row.after |= _parents(chart, stage)
    bottom = max(chart.depths) + 1
    for stage, depth in zip(chart.jobs, chart.depths, strict=True):
        counts = view.counts(stage.undo, stage.undo + stage.count) if stage.undo else Counter()
        if counts.keys() - {WAITING, State.CANCELLED.value, FORGOTTEN}:
            row = _row(found, f"undo of {stage.name}", stage.undo_kind, 2 * bottom - depth)
            row.add(view, stage.undo, stage.undo + stage.count)
    for stage in chart.last:
        row = _row(found, stage.name, stage.kind, 2 * bottom + 1)
        row.add(view, stage.first, stage.end)
        row.after["all others"] = None
    return sorted(found.values(), key=lambda row: row.depth)


def _row(found: dict[tuple[int, str, str], Row], name: str, kind: str, depth: int) -> Row:
    return found.setdefault((depth, name, kind), Row(name=name, kind=kind, depth=depth))


def _parents(chart: Chart, stage: Stage) -> dict[str, None]:
    names: dict[str, None] = {}
    for edge in stage.after:
        first, last = chart.stage_of(edge.first), chart.stage_of(edge.last)
        for index in range(first, min(last, first + MAX_PARENTS) + 1):
            names[chart.jobs[index].name] = None
        if len(names) > MAX_PARENTS:
            break
    return names


def flow_facts(view: FlowView) -> Facts:
    """Return the facts about a flow, without its jobs."""
    job = view.job
    return {
        "id": str(job.id),
        "name": view.chart.graph.name,
        "state": job.state.value,
        "jobs": view.chart.size + len(view.chart.last),
        "undos": view.chart.undos,
        "created_at": iso(job.created_at),
        "finished_at": iso(job.finished_at),
        "reason": job.reason,
    }


def flow_parts(view: FlowView) -> list[Facts]:
    """Return the jobs of a flow, those that are alike together."""
    return [
        {
            "name": row.name,
            "kind": row.kind,
            "jobs": row.jobs,
            "after": list(row.after),
            "states": dict(row.counts),
            "ids": {
                word: [str(each) for each in ids_of(view.job.id, numbers)]
                for word, numbers in row.numbers.items()
            },
        }
        for row in rows_of(view)
    ]
