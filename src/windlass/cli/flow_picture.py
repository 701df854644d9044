"""Owns the picture of a flow in a terminal: a line for jobs that are alike, below their parents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from rich.text import Text

from windlass.app.flow_view import FORGOTTEN, UNDER_WAY, WAITING, FlowView
from windlass.cli import show
from windlass.core.flow import Chart, Stage
from windlass.core.states import State
from windlass.core.text import inert

_SIGNS = {
    State.DEAD.value: ("✗", "red"),
    State.RUNNING.value: ("▶", "cyan"),
    UNDER_WAY: ("▶", "cyan"),
    State.PENDING.value: ("▷", "yellow"),
    State.SCHEDULED.value: ("▷", "blue"),
    WAITING: ("○", "blue"),
    State.CANCELLED.value: ("-", "dim"),
    State.COMPLETED.value: ("✓", "green"),
    FORGOTTEN: ("?", "dim"),
}
"""In the order in which they matter to people: a line shows the first that there is."""
_BAR = 12
_BRANCH = 3
_PARENTS = 3
_LINES = 60


@dataclass(kw_only=True)
class Row:
    """Jobs of one name and kind at one depth, and how it stands with them."""

    name: str
    kind: str
    depth: int
    counts: Counter[str] = field(default_factory=Counter)
    after: dict[str, None] = field(default_factory=dict)

    @property
    def jobs(self) -> int:
        """How many they are."""
        return sum(self.counts.values())


def rows_of(view: FlowView) -> list[Row]:
    """Gather jobs that are alike, in the order of their depths."""
    chart = view.chart
    found: dict[tuple[int, str, str], Row] = {}
    for stage, depth in zip(chart.jobs, chart.depths, strict=True):
        row = _row(found, stage.name, stage.kind, depth)
        row.counts += view.counts(stage.first, stage.end)
        if len(row.after) <= _PARENTS:
            row.after |= _parents(chart, stage)
    bottom = max(chart.depths) + 1
    for stage, depth in zip(chart.jobs, chart.depths, strict=True):
        counts = view.counts(stage.undo, stage.undo + stage.count) if stage.undo else Counter()
        if counts.keys() - {WAITING, State.CANCELLED.value, FORGOTTEN}:
            row = _row(found, f"undo of {stage.name}", stage.undo_kind, 2 * bottom - depth)
            row.counts += counts
    for stage in chart.last:
        row = _row(found, stage.name, stage.kind, 2 * bottom + 1)
        row.counts += view.counts(stage.first, stage.end)
        row.after["all others"] = None
    return sorted(found.values(), key=lambda row: row.depth)


def _row(found: dict[tuple[int, str, str], Row], name: str, kind: str, depth: int) -> Row:
    return found.setdefault((depth, name, kind), Row(name=name, kind=kind, depth=depth))


def _parents(chart: Chart, stage: Stage) -> dict[str, None]:
    names: dict[str, None] = {}
    for edge in stage.after:
        first, last = chart.stage_of(edge.first), chart.stage_of(edge.last)
        for index in range(first, min(last, first + _PARENTS) + 1):
            names[chart.jobs[index].name] = None
        if len(names) > _PARENTS:
            break
    return names


def picture(view: FlowView) -> Iterator[Text]:
    """Draw a flow, however many jobs it has, in lines of which there are not too many."""
    rows = rows_of(view)
    shown = rows[:_LINES]
    width = max(len(_title(row)) for row in shown)
    for number, row in enumerate(shown):
        if number and row.depth != shown[number - 1].depth:
            yield Text(" │", "dim")
        is_last = number + 1 == len(rows)
        yield _line(row, width, "" if row.depth == 0 else " └─" if is_last else " ├─")
    if len(rows) > len(shown):
        jobs = sum(row.jobs for row in rows[_LINES:])
        told = show.plural(jobs, "job")
        yield Text(f" └─ … and {told} more, of {len(rows) - _LINES:,} other names", "dim")


def _line(row: Row, width: int, branch: str) -> Text:
    sign, style = next(_SIGNS[word] for word in _SIGNS if row.counts[word])
    title = _title(row).ljust(width + _BRANCH - len(branch))
    line = Text.assemble((branch, "dim"), " ", (sign, style), " ", title, "  ")
    if row.jobs > 1:
        done = row.counts[State.COMPLETED.value] * _BAR // row.jobs
        line.append_text(Text.assemble(("█" * done, "green"), ("░" * (_BAR - done), "dim"), "  "))
    told = [(word, row.counts[word]) for word in _SIGNS if row.counts[word]]
    words = [f"{count:,} {word}" if row.jobs > 1 else word for word, count in told]
    line.append(", ".join(words), style if len(told) == 1 else "")
    if row.after:
        names = list(row.after)[:_PARENTS]
        more = ", …" if len(row.after) > _PARENTS else ""
        line.append(inert(f"  after {', '.join(names)}{more}"), "dim")
    return line


def _title(row: Row) -> str:
    name = row.name if row.kind == row.name else f"{row.name} = {row.kind}"
    return inert(f"{name} ({row.jobs:,})" if row.jobs > 1 else name)
