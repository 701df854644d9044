"""Owns the process in which a framework's own command line runs a command of Windlass.

It replaces that of the framework: a supervisor must run no code of the project.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn


def prepared(
    home: str, arguments: tuple[str, ...], variables: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment of a process that runs Windlass.

    `home` is where it finds the app, `module:attribute`.
    """
    path = [each or str(Path.cwd()) for each in sys.path]
    environment = {
        **os.environ,
        "WINDLASS_APP": home,
        # As this process has it: frameworks put the directory of the application there.
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(path)),
        **variables,
    }
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [sys.executable, *flags, "-m", "windlass", *arguments], environment


def become(command: list[str], environment: dict[str, str]) -> NoReturn:
    """Replace this process by another."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(command[0], command, environment)  # noqa: S606 - it is this Python.
