"""The command line: `windlass`. What each command does stands in the module of its name."""

from windlass.cli.root import cli


def main() -> None:
    """Run the command line of this process, and end with its exit code."""
    cli(prog_name="windlass")


__all__ = ["cli", "main"]
