"""Owns the supervisor as a process: how it starts, what it hands on, and its exit code."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import typer

from windlass.cli.processes.banner import Banner
from windlass.cli.processes.worker_process import WorkerCommand, written
from windlass.core.values.ranges import Bounds
from windlass.observability.logs import configure_logging
from windlass.settings import load_settings
from windlass.supervisor.reloader import FileWatch
from windlass.supervisor.supervisor import Supervisor


def supervise(command: WorkerCommand, *, reload: bool) -> None:
    """Keep workers for an app alive until stopped; the app itself is never imported here.

    Raises: ConfigError: a flag or a setting is wrong. typer.Exit: with the exit code, if that is
    not 0.
    """
    settings = load_settings(command.flags, environ=os.environ, directory=Path.cwd()).settings
    configure_logging(settings.log_level, settings.log_format, redact=settings.redact)
    watch = FileWatch(Path.cwd()) if reload else None
    if reload:
        # Compiled code is compared with its source by whole seconds, which misses quick saves.
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    code = asyncio.run(_run(command, settings.processes, watch))
    if code:
        raise typer.Exit(code)


async def _run(command: WorkerCommand, processes: Bounds, watch: FileWatch | None) -> int:
    # Made inside the loop, like everything that waits on it.
    supervisor = Supervisor(
        written(command), processes=processes, announcer=Banner(command.reference), watch=watch
    )
    return await supervisor.run()
