"""The command line: `windlass`. Each command has a module of its name in `cli.commands`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from windlass.cli.processes.garbage import without_collections
from windlass.process import CHANNEL_VARIABLE

if TYPE_CHECKING:
    from windlass.cli.processes.worker_command import Typed
    from windlass.supervisor.spawn import Spawned


_INTERRUPTED = 130
"""The exit code after Ctrl-C, as of a shell."""


def main() -> None:
    """Run the command line of this process, and end with its exit code.

    Ctrl-C is no error: it may come while modules are imported, where no command handles it.
    """
    try:
        _main()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


def _main() -> None:
    # Only one of them is imported: neither a supervisor nor a worker needs typer.
    if CHANNEL_VARIABLE in os.environ:
        from windlass.process.supervisor_channel import SupervisorChannel

        # First: the supervisor may ask for the stack of a process that hangs in an import.
        channel = SupervisorChannel.from_environment()
        with without_collections():
            from windlass.cli.processes.worker_process import main as serve

        serve(channel)
        return
    from windlass.cli.processes.worker_command import read_typed

    if typed := read_typed(sys.argv[1:]):
        first = _first_worker(typed)
        with without_collections():
            from windlass.cli.processes.supervisor_process import main as supervise

        supervise(typed, first)
    else:
        with without_collections():
            from windlass.cli.root_command import cli

        cli(prog_name="windlass")


def _first_worker(typed: Typed) -> Spawned | None:
    """Start the first worker's process: its imports take as long as those of its supervisor."""
    if typed.reload:
        return None
    from windlass.cli.processes.worker_command import written
    from windlass.supervisor.spawn import Spawned

    try:
        return Spawned(written(typed.command))
    except OSError:
        return None  # The supervisor tries it again, and says why it cannot.


__all__ = ["main"]
