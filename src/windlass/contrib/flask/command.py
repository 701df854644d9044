"""Owns `flask windlass ...`: the command line of Windlass, for the app of a Flask application.

It replaces this process by `python -m windlass`: a supervisor must run no code of the project.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
from flask.cli import ScriptInfo

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
    command, environment = prepared(context.ensure_object(ScriptInfo), arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(command[0], command, environment)  # noqa: S606 - it is this Python.


def prepared(script: ScriptInfo, arguments: tuple[str, ...]) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment of a process that runs Windlass."""
    path = [each or str(Path.cwd()) for each in sys.path]
    environment = {
        **os.environ,
        "WINDLASS_APP": HOME,
        # As this process has it: flask puts the directory of the application there.
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(path)),
    }
    if script.app_import_path is not None:  # From --app; else FLASK_APP, or app.py.
        environment["FLASK_APP"] = script.app_import_path
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [sys.executable, *flags, "-m", "windlass", *arguments], environment
