"""Owns the picture of a flow in a terminal: a line for jobs that are alike, below their parents."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from rich.text import Text

from windlass.app.workflows.flow_rows import MAX_PARENTS, Row, rows_of
from windlass.app.workflows.flow_view import FORGOTTEN, UNDER_WAY, WAITING, FlowView
from windlass.cli.output import console as show
from windlass.core.jobs.states import State
from windlass.core.values.text import inert
from windlass.core.workflows.flow_graph import ids_of

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
"""States by their importance to people: a line shows the first that it has."""
_BAR_WIDTH = 12
_BRANCH = 3
_MAX_LINES = 60


def picture(view: FlowView) -> Iterator[Text]:
    """Draw a flow of any size in a bounded number of lines."""
    rows = rows_of(view)
    shown = rows[:_MAX_LINES]
    width = max(len(_title(row)) for row in shown)
    for number, row in enumerate(shown):
        if number and row.depth != shown[number - 1].depth:
            yield Text(" │", "dim")
        is_last = number + 1 == len(rows)
        branch = "" if row.depth == 0 else " └─" if is_last else " ├─"
        yield _line(row, width, branch, view.job.id)
    if len(rows) > len(shown):
        jobs = sum(row.jobs for row in rows[_MAX_LINES:])
        rest = show.plural(jobs, "job")
        yield Text(f" └─ … and {rest} more, of {len(rows) - _MAX_LINES:,} other names", "dim")


def _line(row: Row, width: int, branch: str, flow: UUID) -> Text:
    sign, style = _SIGNS[row.word]
    title = _title(row).ljust(width + _BRANCH - len(branch))
    line = Text.assemble((branch, "dim"), " ", (sign, style), " ", title, "  ")
    if row.jobs > 1:
        done = row.counts[State.COMPLETED.value] * _BAR_WIDTH // row.jobs
        line.append_text(
            Text.assemble(("█" * done, "green"), ("░" * (_BAR_WIDTH - done), "dim"), "  ")
        )
    counts = [(word, row.counts[word]) for word in _SIGNS if row.counts[word]]
    words = [f"{count:,} {word}" if row.jobs > 1 else word for word, count in counts]
    line.append(", ".join(words), style if len(counts) == 1 else "")
    if row.after:
        names = list(row.after)[:MAX_PARENTS]
        more = ", …" if len(row.after) > MAX_PARENTS else ""
        line.append(inert(f"  after {', '.join(names)}{more}"), "dim")
    ids = list(ids_of(flow, row.numbers[row.word]))
    more = ", …" if row.counts[row.word] > len(ids) else ""
    line.append(f"  {', '.join(str(each) for each in ids)}{more}", "dim")
    return line


def _title(row: Row) -> str:
    name = row.name if row.kind == row.name else f"{row.name} = {row.kind}"
    return inert(f"{name} ({row.jobs:,})" if row.jobs > 1 else name)
