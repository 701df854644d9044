"""Owns the look of output: consoles, tables, times, and text from outside made harmless.

No console here understands markup, so that a kind called `[red]` is shown as just that.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, TextIO

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from windlass.core.jobs.ids import shortened
from windlass.core.jobs.job import Job
from windlass.core.jobs.states import State
from windlass.core.values.durations import ago as ago
from windlass.core.values.text import inert, inert_lines
from windlass.core.values.text import plural as plural

_PIPED_WIDTH = 1_000
_MAX_CELL_WIDTH = 120
STATE_STYLES = {
    State.SCHEDULED: "blue",
    State.PENDING: "yellow",
    State.RUNNING: "cyan",
    State.COMPLETED: "green",
    State.DEAD: "red",
    State.CANCELLED: "dim",
}


def stdout() -> Console:
    """Return a console for the output; wide where no terminal sets a limit."""
    return _console(sys.stdout)


def stderr() -> Console:
    return _console(sys.stderr)


def error(message: str) -> None:
    stderr().print(Text.assemble(("error: ", "bold red"), inert(message)), soft_wrap=True)


def place(frames: str) -> None:
    """Print where an error was raised: frames of a traceback."""
    stderr().print(Text(inert_lines(frames), "dim"), soft_wrap=True)


def note(message: str) -> None:
    """Print a message beside the output that a script would read."""
    stderr().print(Text(inert(message), "dim"), soft_wrap=True)


def say(message: str | Text) -> None:
    text = message if isinstance(message, Text) else Text(inert(message))
    stdout().print(text, soft_wrap=True)


def document(value: Any) -> None:
    """Print the one JSON document of a command; in ASCII, in which no character can do harm."""
    typer.echo(json.dumps(value, indent=2))


def pairs() -> Table:
    """Make a table of names and values, without a head."""
    made = Table.grid(padding=(0, 2))
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    return made


def cell(value: object, style: str = "") -> Text:
    """Show a value on one line and not too long."""
    text = "" if value is None else inert(str(value))
    return Text(text if len(text) <= _MAX_CELL_WIDTH else f"{text[: _MAX_CELL_WIDTH - 1]}…", style)


def ids(jobs: Sequence[Job]) -> list[str]:
    """Return the ids of jobs: for a person only as much of each as makes them unique."""
    own = [job.id for job in jobs]
    return shortened(own) if _is_terminal(sys.stdout) else [str(each) for each in own]


def block(text: str, style: str = "") -> Text:
    """Show text of many lines, indented."""
    return Text("    " + inert_lines(text).replace("\n", "\n    "), style)


def state(value: State) -> Text:
    return Text(value.value, STATE_STYLES[value])


def count(number: int, style: str = "", *, capped: bool = False) -> Text:
    """Write a number; `capped`: there may be more."""
    more = "+" if capped else ""
    return Text(f"{number:,}{more}", style) if number else Text(f"0{more}", "dim")


def moment(value: datetime | None, now: datetime) -> str:
    """Write an instant, and how far it is from now."""
    if value is None:
        return ""
    instant = value.astimezone(UTC).isoformat(" ", "milliseconds").replace("+00:00", "Z")
    return f"{instant}  ({ago(value, now)})"


def _console(file: TextIO | None) -> Console:
    return Console(
        file=io.StringIO() if file is None else file,
        width=None if _is_terminal(file) else _PIPED_WIDTH,
        # By itself, rich would still write bold and dim text, which are escape sequences, too.
        color_system=None if os.environ.get("NO_COLOR") else "auto",
        markup=False,
        highlight=False,
        emoji=False,
    )


def _is_terminal(file: TextIO | None) -> bool:
    # Python has None in place of a stream that its caller closed.
    return file is not None and file.isatty()
