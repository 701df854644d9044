"""The command line: `windlass`. Each command has a module of its name in `cli.commands`."""

from windlass.process.supervisor_channel import SupervisorChannel


def main() -> None:
    """Run the command line of this process, and end with its exit code."""
    # Only one of them is imported: a worker's process does not need typer.
    if (channel := SupervisorChannel.from_environment()) is not None:
        from windlass.cli.processes.worker_process import main as serve

        serve(channel)
    else:
        from windlass.cli.root_command import cli

        cli(prog_name="windlass")


__all__ = ["main"]
