"""Owns the supervisor as a process: how it starts, what it hands on, and its exit code."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import typer

from windlass.cli.held import Order, written
from windlass.core.bounds import Bounds
from windlass.observe.logs import configure_logging
from windlass.runtime.reload import Watch
from windlass.runtime.supervisor import Supervisor
from windlass.settings import Settings, load_settings


def supervise(order: Order, *, reload: bool) -> None:
    """Keep workers for an app alive until told to stop; the app itself is never imported here.

    Raises:
        ConfigError: a flag or a setting is wrong.
        typer.Exit: with the exit code, if that is not 0.
    """
    settings = load_settings(order.flags, environ=os.environ, directory=Path.cwd()).settings
    _configure(settings)
    watch = Watch(Path.cwd()) if reload else None
    if reload:
        # Compiled code is told from its source by whole seconds, so what is saved fast is missed.
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    code = asyncio.run(_run(written(order), settings.processes, watch))
    if code:
        raise typer.Exit(code)


async def _run(command: list[str], processes: Bounds, watch: Watch | None) -> int:
    # Made where the loop runs, like everything that waits on it.
    supervisor = Supervisor(
        command, processes=processes, configure=_configure, watch=watch, interrupted=_hint
    )
    return await supervisor.run()


def _configure(settings: Settings) -> None:
    configure_logging(settings.log_level, settings.log_format, redact=settings.redact)


def _hint(running: int) -> None:
    """Tell somebody at a terminal why the first Ctrl-C does not end it at once."""
    if running and sys.stderr.isatty():
        # Imported here, because it loads rich.
        from windlass.cli import show

        jobs = show.plural(running, "job")
        them = "it" if running == 1 else "them"
        show.note(f"finishing {jobs}; press Ctrl-C again to give {them} back at once")
