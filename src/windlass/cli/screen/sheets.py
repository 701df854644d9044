"""Owns the sheets that say the same of every row: the keys, and what is wrong."""

from __future__ import annotations

from rich.text import Text

from windlass.cli.screen.alarms import alarms
from windlass.cli.screen.cells import tame
from windlass.cli.screen.panels import Looked

_KEYS = (
    ("1 2 3 4, tab", "choose a panel: queues, kinds, errors, workers"),
    ("↑ ↓, j k", "choose a row; page up and down, home and end go further"),
    ("enter", "look into the row: jobs, times, a traceback; then into a job"),
    ("p", "pause the queue or kind, or resume it; you are asked first"),
    ("r", "redrive the dead jobs of the error, or a job; you are asked"),
    ("/", "show only what has a text in it; esc shows all again"),
    ("!", "all that is wrong"),
    ("esc, q", "back from here; q leaves, and so does Ctrl-C"),
)
_WORDS = (
    ("in/s, out/s", "jobs that come, and that leave for good, in a second"),
    ("drains", "after how long nothing waits any more, if all goes on like this"),
    ("needs", "slots that keep up with what comes, busy 80% of the time"),
    ("waits", "how long jobs were due before they started; 95% of them less"),
    ("slots", "how many slots a kind keeps busy, on the average"),
    ("-", "not known, or there is nothing to know"),
)


def _explained(pairs: tuple[tuple[str, str], ...]) -> list[Text]:
    return [Text.assemble((f" {name:<14}", "bold"), told) for name, told in pairs]


HELP = (
    Text(" keys", "underline"),
    *_explained(_KEYS),
    Text(),
    Text(" words", "underline"),
    *_explained(_WORDS),
)
"""What the keys do, and what the words mean."""


def told_alarms(looked: Looked) -> list[Text]:
    """Say what is wrong, a line each; or that all is well."""
    found = alarms(looked)
    if not found:
        return [Text.assemble(("✓ ", "green"), "all is well")]
    return [
        Text.assemble(
            ("● ", "bold red") if each.urgent else ("○ ", "yellow"),
            (tame(each.told), "bold" if each.urgent else ""),
        )
        for each in found
    ]
