"""Owns how things look: consoles, tables, times, and text from outside made harmless.

No console here understands markup, so that a kind called `[red]` is shown as just that.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from typing import Any, TextIO

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from windlass.core.states import State
from windlass.core.text import inert, inert_lines

_PIPED_WIDTH = 1_000
_CELL = 120
STATE_STYLES = {
    State.SCHEDULED: "blue",
    State.PENDING: "yellow",
    State.RUNNING: "cyan",
    State.COMPLETED: "green",
    State.DEAD: "red",
    State.CANCELLED: "dim",
}


def stdout() -> Console:
    """Return a console for what was asked for; wide where no terminal sets a limit."""
    return _console(sys.stdout)


def stderr() -> Console:
    """Return a console for what is said beside that."""
    return _console(sys.stderr)


def error(message: str) -> None:
    """Say in one line what went wrong."""
    stderr().print(Text.assemble(("error: ", "bold red"), inert(message)), soft_wrap=True)


def note(message: str) -> None:
    """Say something beside the output that a script would read."""
    stderr().print(Text(inert(message), "dim"), soft_wrap=True)


def say(message: str | Text) -> None:
    """Write a line."""
    text = message if isinstance(message, Text) else Text(inert(message))
    stdout().print(text, soft_wrap=True)


def document(value: Any) -> None:
    """Write the one JSON document of a command; in ASCII, in which no character can do harm."""
    typer.echo(json.dumps(value, indent=2))


def pairs() -> Table:
    """Make a table of names and values, without a head."""
    made = Table.grid(padding=(0, 2))
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    return made


def cell(value: object, style: str = "") -> Text:
    """Show a value on one line and not too long, whatever is in it."""
    text = "" if value is None else inert(str(value))
    return Text(text if len(text) <= _CELL else f"{text[: _CELL - 1]}…", style)


def block(text: str, style: str = "") -> Text:
    """Show text of many lines, indented, whatever is in it."""
    return Text("    " + inert_lines(text).replace("\n", "\n    "), style)


def state(value: State) -> Text:
    """Show a state in its colour."""
    return Text(value.value, STATE_STYLES[value])


def count(number: int, style: str = "") -> Text:
    """Show a number, and nothing much where there is nothing."""
    return Text(f"{number:,}", style) if number else Text("0", "dim")


def plural(number: int, noun: str) -> str:
    """Write `1 job`, `2,000 jobs`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def short(span: timedelta) -> str:
    """Write a duration by its two greatest units: `350ms`, `12.5s`, `3m12s`, `2d4h`."""
    seconds = max(span.total_seconds(), 0)
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 60:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if hours == 0:
        return f"{minutes}m{int(seconds) % 60:02}s"
    return f"{hours}h{minutes % 60:02}m" if days == 0 else f"{days}d{hours % 24}h"


def ago(moment: datetime | None, now: datetime) -> str:
    """Write how long ago, or in how long, something is."""
    if moment is None:
        return ""
    return f"{short(now - moment)} ago" if moment <= now else f"in {short(moment - now)}"


def moment(value: datetime | None, now: datetime) -> str:
    """Write an instant, and how far it is from now."""
    if value is None:
        return ""
    told = value.astimezone(UTC).isoformat(" ", "milliseconds").replace("+00:00", "Z")
    return f"{told}  ({ago(value, now)})"


def _console(file: TextIO) -> Console:
    width = None if file.isatty() else _PIPED_WIDTH
    return Console(file=file, width=width, markup=False, highlight=False, emoji=False)
