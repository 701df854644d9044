"""Owns `windlass demo`, as far as it is a command; `windlass.demo` does it."""

from __future__ import annotations

from typing import Annotated

import typer

from windlass.cli import options, show


def demo(
    jobs: Annotated[int, typer.Option(min=20, max=100_000, help="How many jobs to run.")] = 1000,
) -> None:
    """Watch a thousand jobs run.

    Most are fast, some slow, some fail and are retried, one snoozes, one goes dead. Uses an
    embedded queue in a temporary directory, and one worker process. Leaves nothing behind.
    """
    # Imported here: no other command needs the demo's app and what runs it.
    from windlass.demo.run import run_demo

    raise typer.Exit(run_demo(jobs, show.stdout()))


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command(epilog=options.example("windlass demo --jobs 5000"))(demo)
