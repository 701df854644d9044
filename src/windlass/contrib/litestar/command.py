"""Owns `litestar windlass ...`: the command line of Windlass, for the app of a Litestar program."""

from __future__ import annotations

from typing import Any

import click

from windlass.contrib import command_process

HOME = "windlass.contrib.litestar.project:jobs"
"""Where the processes of Windlass find the app."""


def windlass_command() -> click.Command:
    """Return the command; Litestar passes it the environment that it has loaded."""

    @click.command(
        "windlass",
        context_settings={
            "allow_interspersed_args": False,
            "help_option_names": [],
            "ignore_unknown_options": True,
        },
        short_help="Run any command of Windlass: `litestar windlass worker`.",
    )
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def windlass(env: Any, arguments: tuple[str, ...]) -> None:
        """Run any command of Windlass for this application: `litestar windlass worker`."""
        command_process.become(*prepared(env.app_path, arguments))

    return windlass


def prepared(app_path: str, arguments: tuple[str, ...]) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment of a process that runs Windlass."""
    return command_process.prepared(HOME, arguments, {"LITESTAR_APP": app_path})
