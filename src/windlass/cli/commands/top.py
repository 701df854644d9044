"""Owns `windlass top`: a live view of a store in a terminal."""

from __future__ import annotations

import os
import shutil
import sys
from datetime import timedelta
from typing import Annotated

import typer

from windlass.app import Windlass
from windlass.app.snapshot import Snapshot, take_snapshot
from windlass.cli import options
from windlass.cli.output import console as show
from windlass.cli.top.content.picture import print_out
from windlass.core.errors import ConfigError
from windlass.core.values.durations import duration

_MIN_INTERVAL = timedelta(milliseconds=500)

EXAMPLES = ("windlass top --app shop:app",)


def top(
    *,
    every: Annotated[str, typer.Option(help="Refresh interval: 2, 500ms.")] = "1",
    once: Annotated[bool, typer.Option("--once", help="Print one screen and exit.")] = False,
    target: options.Target,
) -> None:
    """Watch queues, kinds, errors and workers live; pause, redrive and look into them.

    `?` shows the keys, q leaves. Scripts read `windlass stats --json` instead.
    """
    with options.usage():
        interval = duration(options.span(every) or 0)
    if interval < _MIN_INTERVAL:
        raise typer.BadParameter(
            "--every must be at least 500ms, to keep the load on the store low"
        )
    if once:
        _print(target.visit(take_snapshot))
        return
    _refuse_without_terminal()
    try:
        # Imported here, because it is an extra, and other commands start without it.
        from windlass.cli.top.app import run_top
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"windlass top needs Textual ({error}): pip install 'windlass[top]'"
        ) from error

    async def work(chosen: Windlass) -> int:
        return await run_top(chosen, interval)

    if code := target.visit(work):
        raise typer.Exit(code)


def _refuse_without_terminal() -> None:
    name = os.environ.get("TERM", "")
    if not all(file.isatty() for file in (sys.stdin, sys.stdout, sys.stderr)):
        reason = "this is not a terminal"
    elif name in ("", "dumb", "unknown"):
        reason = f"the terminal TERM={name!r} is not supported"
    else:
        return
    raise ConfigError(
        f"{reason}; `windlass top --once` prints one screen, and `windlass stats --json` is for "
        "scripts"
    )


def _print(snapshot: Snapshot) -> None:
    console = show.stdout()
    console.width = shutil.get_terminal_size().columns
    for line in print_out(snapshot, console.width):
        line.rstrip()
        console.print(line, no_wrap=True, soft_wrap=True)
