"""Owns a worker's process below a supervisor: how it starts, and how it ends.

Its command is not read by typer: that loads pydantic, which would stay in every worker's memory.
"""

from __future__ import annotations

import sys
from typing import Any, cast

from msgspec.structs import replace

from windlass.app import Windlass
from windlass.cli import app_target
from windlass.cli.app_target import refuse_private
from windlass.cli.processes.garbage import without_collections
from windlass.cli.processes.signals import serve
from windlass.cli.processes.worker_command import WorkerCommand, read
from windlass.cli.refusals import reason, refuse
from windlass.core.errors import WindlassError
from windlass.observability.logs import configure_logging, get_logger, is_for_people
from windlass.process.supervisor_channel import Hello, SupervisorChannel

log = get_logger("windlass.cli")


def main(channel: SupervisorChannel) -> None:
    """Serve as commanded, or exit with 1 and one line that says why not."""
    command = read(sys.argv[1:])
    try:
        if channel.wait_for_begin():
            _serve(command, channel)
    except (WindlassError, OSError) as error:
        why = reason(error)
        if command.debug or why is None:
            raise
        refuse(error, why)
        sys.exit(1)


def _serve(command: WorkerCommand, channel: SupervisorChannel) -> None:
    chosen = app_target.load(command.reference)
    chosen.configure(**cast("dict[str, Any]", command.flags))
    settings = chosen.settings
    configure_logging(settings.log_level, settings.log_format, redact=settings.redact)
    channel.record()
    with without_collections():  # Both are imported by their first use.
        refuse_private(chosen.store)
        served = chosen.worker(name=command.name, burst=command.burst, channel=channel)
    patience = served.patience()
    seconds = None if patience is None else patience.total_seconds()
    shared = replace(settings, encryption_keys=())  # A process without handlers needs no keys.
    channel.say(Hello(shared, chosen.store.location, seconds, tuple(sorted(chosen.registry))))
    if is_for_people():
        channel.wait_for_greeting()
    _warn(chosen, command.reference)
    serve(served, channel)


def _warn(app: Windlass, reference: str) -> None:
    for warning in app.resolved.warnings:
        log.warning("setting.unknown", problem=warning)
    if not list(app.registry):
        log.warning(
            "worker.serves_nothing",
            problem=f"no handler is registered in {reference}",
            remedy="import the modules that define them, there or with --imports",
        )
