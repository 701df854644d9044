"""The command line: `windlass`. What each command does stands in the module of its name."""

from windlass.runtime.leash import Leash


def main() -> None:
    """Run the command line of this process, and end with its exit code."""
    # Only one of them is loaded: a worker's process would have no use for all of typer.
    if (leash := Leash.from_environment()) is not None:
        from windlass.cli.held import main as serve

        serve(leash)
    else:
        from windlass.cli.root import cli

        cli(prog_name="windlass")


__all__ = ["main"]
