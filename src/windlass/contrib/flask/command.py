"""Owns `flask windlass ...`: the command line of Windlass, for the app of a Flask application."""

from __future__ import annotations

import click
from flask.cli import ScriptInfo

from windlass.contrib import command_process

HOME = "windlass.contrib.flask.project:jobs"
"""Where the processes of Windlass find the app."""


@click.command(
    "windlass",
    context_settings={
        "allow_interspersed_args": False,
        "help_option_names": [],
        "ignore_unknown_options": True,
    },
    short_help="Run any command of Windlass: `flask windlass worker`.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def windlass_command(context: click.Context, arguments: tuple[str, ...]) -> None:
    """Run any command of Windlass for this application: `flask windlass worker`."""
    command_process.become(*prepared(context.ensure_object(ScriptInfo), arguments))


def prepared(script: ScriptInfo, arguments: tuple[str, ...]) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment of a process that runs Windlass."""
    found = script.app_import_path  # From --app; else FLASK_APP, or app.py.
    variables = {} if found is None else {"FLASK_APP": found}
    return command_process.prepared(HOME, arguments, variables)
