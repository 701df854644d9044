"""Owns the text of sheets: help, alarms, and the parts that the sheets of rows have in common."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import RenderableType
from rich.text import Text

from windlass.app.snapshot import Snapshot
from windlass.cli.output import console as show
from windlass.cli.top.content.cells import printable
from windlass.core.alarms import find_alarms

_KEYS = (
    ("1 2 3 4, tab", "select a panel: queues, kinds, errors, workers"),
    ("↑ ↓, j k", "select a row; also page up and down, home, end"),
    ("enter", "open the row: jobs, times, traceback; then a job"),
    ("p", "pause or resume the queue or kind, after confirmation"),
    ("r", "redrive an error's dead jobs, or a job, after confirmation"),
    ("/", "filter by text; esc clears the filter"),
    ("!", "all problems"),
    ("esc, q", "go back; q or Ctrl-C quits"),
)
_WORDS = (
    ("in/s, out/s", "jobs that arrive and that finish, per second"),
    ("empty in", "time until the queue is empty at the current rates"),
    ("needs", "slots needed to keep up, each busy 80% of the time"),
    ("waits", "time from due to start; 95% of the jobs waited less"),
    ("slots", "slots that a kind keeps busy, on average"),
    ("-", "unknown, or not applicable"),
)


def _explained(words: tuple[tuple[str, str], ...]) -> list[Text]:
    return [Text.assemble((f" {name:<14}", "bold"), meaning) for name, meaning in words]


HELP = (
    Text(" keys", "underline"),
    *_explained(_KEYS),
    Text(),
    Text(" words", "underline"),
    *_explained(_WORDS),
)


def alarm_lines(snapshot: Snapshot) -> list[Text]:
    """Return a line for each alarm, or one that says that all is well."""
    return [
        Text.assemble(
            ("● ", "bold red") if alarm.urgent else ("○ ", "yellow"),
            (printable(alarm.text), "bold" if alarm.urgent else ""),
        )
        for alarm in find_alarms(snapshot.stats, snapshot.pauses)
    ] or [Text.assemble(("✓ ", "green"), "all is well")]


def title(subject: str, name: str) -> Text:
    """Return the first line of the sheet of a row."""
    return Text.assemble((f"{subject} ", "dim"), (printable(name), "bold"))


def pairs(values: dict[str, str]) -> RenderableType:
    """Write names and values below each other, without the empty values."""
    grid = show.pairs()
    for name, value in values.items():
        if value:
            grid.add_row(name, Text(printable(value)))
    return grid


def listed(lines: Iterable[Text]) -> list[Text]:
    """Return the lines, or one that says that there are none."""
    return list(lines) or [Text("  none", "dim")]
