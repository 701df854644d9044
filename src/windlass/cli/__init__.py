"""The command line: `windlass`. Each command has a module of its name in `cli.commands`."""

import os
import sys

from windlass.process import CHANNEL_VARIABLE


def main() -> None:
    """Run the command line of this process, and end with its exit code."""
    # Only one of them is imported: neither a supervisor nor a worker needs typer.
    if CHANNEL_VARIABLE in os.environ:
        from windlass.process.supervisor_channel import SupervisorChannel

        # First: the supervisor may ask for the stack of a process that hangs in an import.
        channel = SupervisorChannel.from_environment()

        from windlass.cli.processes.worker_process import main as serve

        serve(channel)
        return
    from windlass.cli.processes.worker_command import read_typed

    if typed := read_typed(sys.argv[1:]):
        from windlass.cli.processes.supervisor_process import main as supervise

        supervise(typed)
    else:
        from windlass.cli.root_command import cli

        cli(prog_name="windlass")


__all__ = ["main"]
