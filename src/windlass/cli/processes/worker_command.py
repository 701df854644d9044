"""Owns the command of a worker as a value: the app, its flags, and how they are written and read.

It is written as a user would type it, so that a list of processes says what each is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

VALUED = (
    *("url", "queues", "exclude", "space", "imports", "concurrency", "processes", "threads"),
    *("isolated_processes", "claim_size", "poll_interval", "lease", "shutdown_timeout"),
    *("wait_for_store", "metrics_port", "metrics_host", "log_level", "log_format"),
)
"""The flags of `windlass worker` that are settings and have a value."""
_SWITCHES = ("--burst", "--insecure", "--reload", "--debug")


class WorkerCommand(NamedTuple):
    """The app that a worker serves, and its flags; `debug` shows tracebacks of errors."""

    reference: str
    flags: Mapping[str, object]
    name: str
    burst: bool
    debug: bool


class Typed(NamedTuple):
    """A command line as typed: the command, and whether files are watched for changes."""

    command: WorkerCommand
    reload: bool


def written(command: WorkerCommand) -> list[str]:
    """Return the arguments of `windlass` for a worker's process."""
    given = {**command.flags, "name": command.name or None, "burst": command.burst or None}
    options = [
        f"--{key.replace('_', '-')}" + ("" if value is True else f"={value}")
        for key, value in given.items()
        if value is not None
    ]
    return [*(["--debug"] if command.debug else []), "worker", command.reference, *options]


def read(arguments: Sequence[str]) -> WorkerCommand:
    """Return the command that a supervisor has written."""
    debug = arguments[0] == "--debug"
    _, reference, *options = arguments[debug:]
    flags: dict[str, object] = {}
    for option in options:
        flag, has_value, value = option.removeprefix("--").partition("=")
        flags[flag.replace("-", "_")] = value if has_value else True
    name, burst = str(flags.pop("name", "")), bool(flags.pop("burst", False))
    return WorkerCommand(reference, flags, name, burst, debug)


def read_typed(arguments: Sequence[str], environ: Mapping[str, str] = os.environ) -> Typed | None:
    """Read `windlass worker` as people and units mostly write it; None: typer has to read it.

    Typer loads pydantic to read a command, which a supervisor would keep in memory for its life.
    Whatever is not plain here, or may be wrong, is left to typer, which also says what is wrong.
    """
    if "WINDLASS_DEBUG" in environ or any(name.endswith("_COMPLETE") for name in environ):
        return None
    words: list[str] = []
    values: dict[str, str] = {}
    switches: set[str] = set()
    try:
        for option, value in _options(arguments):
            if option and option != "--debug" and not words:
                return None  # An option of the command before its name.
            if option in _SWITCHES:
                switches.add(option)
            elif option:
                values[option.removeprefix("--").replace("-", "_")] = value
            else:
                words.append(value)
    except ValueError:
        return None
    command, *rest = words or [""]
    reference, *more = rest or [environ.get("WINDLASS_APP", "")]
    reference = values.pop("app", reference)
    if command != "worker" or more or not _is_plain(reference):
        return None
    name = values.pop("name", "")
    insecure = {"insecure": True} if "--insecure" in switches else {}
    flags = {**values, **insecure}
    debug, burst = "--debug" in switches, "--burst" in switches
    return Typed(WorkerCommand(reference, flags, name, burst, debug), "--reload" in switches)


def _options(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield options with their values; a word without an option has an empty one.

    Raises:
        ValueError: an option is not known, or has no value that is plainly its own.
    """
    remaining = iter(arguments)
    for word in remaining:
        if not word.startswith("-"):
            yield "", word
            continue
        option, has_value, value = word.partition("=")
        if option in _SWITCHES and not has_value:
            yield option, ""
            continue
        if (
            option.removeprefix("--").replace("-", "_") not in (*VALUED, "name", "app")
            or "_" in option
        ):
            raise ValueError(option)
        value = value if has_value else next(remaining, "")
        if not value.strip() or value.startswith("-"):
            raise ValueError(option)
        yield option, value


def _is_plain(reference: str) -> bool:
    module, _, path = reference.partition(":")
    return not module.endswith(".py") and all(
        each.replace(".", "_").isidentifier() for each in (module, path)
    )
