"""Runs inside of an environment under test, with nothing but the standard library and Windlass.

`inside.py look` imports every module of the package, and prints why each failed that did, every
command of `windlass`, and the help of each command and group. `inside.py run` reads lists of
arguments from stdin, calls `windlass` with each, and prints exit codes and what was said.

Calls are made in forks, which saves the start of an interpreter for each, and once every module is
loaded that can be: what a command imports that is not installed still fails in its fork.
"""

from __future__ import annotations

import gc
import json
import os
import pkgutil
import sys
import tempfile
import traceback
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn


def main() -> None:
    """Do what the first argument says, and print the answer as JSON."""
    commands = list(_commands())
    broken = _broken_modules()
    gc.freeze()  # Else each fork would copy what a collection touches.
    answer: Any
    match sys.argv[1]:
        case "look":
            groups = {path[0] for path in commands}
            asked = [*commands, *([name] for name in sorted(groups) if [name] not in commands)]
            answer = {
                "broken": broken,
                "commands": [" ".join(path) for path in commands],
                "help": {" ".join(path): _in_fork([*path, "--help"]) for path in asked},
            }
        case "run":
            answer = [_in_fork(call) for call in json.load(sys.stdin)]
    print(json.dumps(answer))


def _broken_modules() -> dict[str, str]:
    import windlass

    broken = {}
    for each in pkgutil.walk_packages(windlass.__path__, "windlass.", onerror=lambda _: None):
        try:
            if each.name != "windlass.__main__":  # That would run it.
                import_module(each.name)
        except Exception:  # For example a module that needs the settings of Django.
            broken[each.name] = traceback.format_exc()
    return broken


def _commands() -> Iterator[list[str]]:
    from typer.main import get_command

    from windlass.cli.root_command import cli

    def walk(command: Any, path: list[str]) -> Iterator[list[str]]:
        if not hasattr(command, "list_commands"):
            yield path
            return
        for name in command.list_commands(None):
            yield from walk(command.get_command(None, name), [*path, name])

    yield from walk(get_command(cli), [])


def _windlass(arguments: list[str]) -> None:
    from windlass.cli import main as windlass

    sys.argv = ["windlass", *arguments]
    windlass()


def _in_fork(arguments: list[str]) -> tuple[int, str, str]:
    """Return the exit code of a fork that calls `windlass`, and what it wrote."""
    with tempfile.TemporaryDirectory() as directory:
        out, err = Path(directory, "out"), Path(directory, "err")
        if not (child := os.fork()):
            _be_child(arguments, out, err)
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status), out.read_text(), err.read_text()


def _be_child(arguments: list[str], out: Path, err: Path) -> NoReturn:
    code = 0
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, file in ((1, out), (2, err)):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
    try:
        _windlass(arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 70
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
