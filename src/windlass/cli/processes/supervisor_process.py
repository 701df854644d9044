"""Owns the supervisor as a process: how it starts, what it hands on, and its exit code."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from windlass.cli.processes.banner import Banner
from windlass.cli.processes.worker_command import Typed, WorkerCommand, written
from windlass.cli.refusals import reason, refuse
from windlass.core.errors import WindlassError
from windlass.core.values.ranges import Bounds
from windlass.observability.logs import configure_logging
from windlass.settings import load_settings
from windlass.supervisor.reloader import FileWatch
from windlass.supervisor.spawn import Spawned
from windlass.supervisor.supervisor import Supervisor


def main(typed: Typed, first: Spawned | None) -> None:
    """Supervise as typed, and end with the exit code; an error is one line, and 1.

    `first` is the first worker's process, if it has been started.
    """
    try:
        sys.exit(supervise(typed.command, reload=typed.reload, first=first))
    except (WindlassError, OSError) as error:
        why = reason(error)
        if typed.command.debug or why is None:
            raise
        refuse(error, why)
        sys.exit(1)


def supervise(command: WorkerCommand, *, reload: bool, first: Spawned | None = None) -> int:
    """Keep workers for an app alive until stopped, and return the exit code.

    The app itself is never imported here.

    Raises: ConfigError: a flag or a setting is wrong.
    """
    try:
        settings = load_settings(command.flags, environ=os.environ, directory=Path.cwd()).settings
        configure_logging(settings.log_level, settings.log_format, redact=settings.redact)
        watch = FileWatch(Path.cwd()) if reload else None
        if reload:
            # Compiled code is compared with its source by whole seconds, which misses quick saves.
            os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        return asyncio.run(_run(command, settings.processes, watch, first))
    finally:
        if first is not None:
            first.abandon()  # Unless the supervisor has taken it over.


async def _run(
    command: WorkerCommand, processes: Bounds, watch: FileWatch | None, first: Spawned | None
) -> int:
    # Made inside the loop, like everything that waits on it.
    supervisor = Supervisor(
        written(command),
        processes=processes,
        announcer=Banner(command.reference),
        watch=watch,
        first=first,
    )
    return await supervisor.run()
