"""Owns `manage.py windlass ...`: the command line of Windlass, for the apps of this project.

It replaces this process by `python -m windlass`: a supervisor must run no code of the project.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import REMAINDER, ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from windlass.contrib.django.project_apps import HOME, windlass_aliases

_OF_DJANGO = ("--settings", "--pythonpath")
"""Options that Django has handled before."""
_BACKEND = "--backend"


class Command(BaseCommand):
    """Run a command of Windlass."""

    help = (
        "Runs any command of Windlass for this project: `manage.py windlass worker`, "
        "`manage.py windlass jobs list`. --backend ALIAS names a backend other than the first."
    )
    requires_system_checks: list[str] = []  # noqa: RUF012 - Django's own declaration.

    def run_from_argv(self, argv: list[str]) -> None:
        """Run what was typed, without Django's own options and without its parser."""
        command, environment = prepared(argv[2:])
        sys.stdout.flush()
        sys.stderr.flush()
        os.execve(command[0], command, environment)  # noqa: S606 - it is this Python.

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take everything as it is, for `call_command`."""
        parser.add_argument("arguments", nargs=REMAINDER)

    def handle(self, *, arguments: Sequence[str], **_: Any) -> None:
        """Run a command for a program, and raise if it fails."""
        command, environment = prepared(list(arguments))
        done = subprocess.run(command, env=environment, check=False)  # noqa: S603
        if done.returncode:
            raise CommandError(f"windlass ended with {done.returncode}", returncode=done.returncode)


def prepared(arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment of a process that runs Windlass.

    Raises:
        CommandError: there is no such backend, or another process could not find the settings.
    """
    rest, backend = _read(arguments)
    if "DJANGO_SETTINGS_MODULE" not in os.environ:
        raise CommandError(
            "DJANGO_SETTINGS_MODULE must be set, since workers are processes of their own; call "
            "this by manage.py, or set it"
        )
    known = windlass_aliases()
    if not known:
        raise CommandError(
            'TASKS has no Windlass backend; write TASKS = {"default": {"BACKEND": '
            '"windlass.contrib.django.WindlassBackend"}}'
        )
    chosen = backend or ("default" if "default" in known else known[0])
    if chosen not in known:
        raise CommandError(f"--backend must be one of {', '.join(known)}, got {chosen!r}")
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    python = [sys.executable, *flags]
    environment = {
        **os.environ,
        "WINDLASS_APP": f"{HOME}:{chosen}",
        "PYTHONPATH": os.pathsep.join([*_added_to_path(python), *_given_path()]),
    }
    return [*python, "-m", "windlass", *rest], environment


def _added_to_path(python: list[str]) -> list[str]:
    """Return the entries of sys.path that another process of this Python would not have.

    These are the directory of manage.py, --pythonpath, and what manage.py and the settings add.
    The others stay out: tasks may run the tools of another Python, which inherit PYTHONPATH.
    """
    program = [*python, "-c", "import json, sys; print(json.dumps(sys.path))"]
    done = subprocess.run(program, capture_output=True, text=True, check=True)  # noqa: S603
    own = {"", *json.loads(done.stdout.splitlines()[-1])}
    here = [each or str(Path.cwd()) for each in sys.path]
    return list(dict.fromkeys(each for each in here if each not in own))


def _given_path() -> list[str]:
    given = os.environ.get("PYTHONPATH")
    return given.split(os.pathsep) if given else []


def _read(arguments: list[str]) -> tuple[list[str], str | None]:
    """Return the arguments for Windlass, and the backend that they name."""
    rest: list[str] = []
    backend: str | None = None
    words = iter(arguments)
    for word in words:
        name, has_value, value = word.partition("=")
        if name == _BACKEND:
            backend = value if has_value else next(words, "")
        elif name in _OF_DJANGO:
            if not has_value:
                next(words, None)
        else:
            rest.append(word)
    return rest, backend
