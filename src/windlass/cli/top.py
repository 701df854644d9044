"""Owns `windlass top`: a live view of a store in a terminal."""

from __future__ import annotations

import shutil
from datetime import timedelta
from typing import Annotated

import typer

from windlass.app import Windlass
from windlass.cli import options, show, target
from windlass.cli.screen.frame import print_out
from windlass.cli.screen.live import Live, look
from windlass.cli.screen.panels import Looked
from windlass.cli.screen.terminal import refusal
from windlass.core.durations import duration
from windlass.core.errors import ConfigError

_LEAST = timedelta(milliseconds=500)


def top(
    *,
    every: Annotated[str, typer.Option(help="How often to look at the store: 2, 500ms.")] = "2",
    once: Annotated[bool, typer.Option("--once", help="Print one picture, and end.")] = False,
    app: options.App = None,
    url: options.Url = None,
) -> None:
    """Watch queues, kinds, errors and workers live; pause, redrive and look into them.

    `?` shows the keys, q leaves. Scripts read `windlass stats --json` instead.
    """
    with options.usage():
        pace = duration(options.span(every) or 0)
    if pace < _LEAST:
        raise typer.BadParameter("--every is half a second at least: the store has other work, too")
    if once:
        _print(target.visit(app, url, look))
        return
    if (why := refusal()) is not None:
        raise ConfigError(
            f"{why}: `windlass top --once` prints one picture, and `windlass stats --json` tells "
            "scripts the same"
        )

    async def work(chosen: Windlass) -> int:
        return await Live(chosen, pace).run()

    if code := target.visit(app, url, work):
        raise typer.Exit(code)


def _print(looked: Looked) -> None:
    width = shutil.get_terminal_size().columns
    console = show.stdout()
    console.width = width
    for line in print_out(looked, width):
        line.rstrip()
        console.print(line, no_wrap=True, soft_wrap=True)


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command(epilog=options.example("windlass top --app shop:app"))(top)
