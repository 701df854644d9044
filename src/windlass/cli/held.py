"""Owns a worker's process below a supervisor: the order by which it is started, and how it ends.

The order is a command line that anybody could type, so that a list of processes says what each is.
It is read here and not by typer: that loads pydantic, which every worker would carry for its life.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from windlass.app import Windlass
from windlass.cli import places, target
from windlass.cli.refusals import reason
from windlass.cli.serve import serve
from windlass.core.errors import WindlassError
from windlass.observe.logs import configure_logging, get_logger
from windlass.runtime.leash import Hello, Leash

log = get_logger("windlass.cli")


class Order(NamedTuple):
    """Which app a worker serves, with which flags; `debug` shows tracebacks of errors."""

    reference: str
    flags: Mapping[str, object]
    name: str
    burst: bool
    debug: bool


def written(order: Order) -> list[str]:
    """Return the arguments of `windlass` that say what to do."""
    given = {**order.flags, "name": order.name or None, "burst": order.burst or None}
    told = [
        f"--{key.replace('_', '-')}" + ("" if value is True else f"={value}")
        for key, value in given.items()
        if value is not None
    ]
    return [*(["--debug"] if order.debug else []), "worker", order.reference, *told]


def read(arguments: Sequence[str]) -> Order:
    """Return the order that a supervisor has written."""
    debug = arguments[0] == "--debug"
    _, reference, *told = arguments[debug:]
    flags: dict[str, object] = {}
    for each in told:
        flag, has_value, value = each.removeprefix("--").partition("=")
        flags[flag.replace("-", "_")] = value if has_value else True
    name, burst = str(flags.pop("name", "")), bool(flags.pop("burst", False))
    return Order(reference, flags, name, burst, debug)


def main(leash: Leash) -> None:
    """Do what this process was ordered to, and end it with 1 and one line if that cannot be."""
    order = read(sys.argv[1:])
    try:
        _serve(order, leash)
    except (WindlassError, OSError) as error:
        why = reason(error)
        if order.debug or why is None:
            raise
        # Imported here, because it loads rich.
        from windlass.cli import show

        show.error(why)
        sys.exit(1)


def _serve(order: Order, leash: Leash) -> None:
    """Be the worker of a supervisor, which holds the leash."""
    chosen = target.load(order.reference)
    chosen.configure(**order.flags)
    settings = chosen.settings
    configure_logging(settings.log_level, settings.log_format, redact=settings.redact)
    leash.record()
    places.refuse_private(chosen.store)
    served = chosen.worker(name=order.name, burst=order.burst, leash=leash)
    patience = served.patience()
    seconds = None if patience is None else patience.total_seconds()
    told = replace(settings, encryption_keys=())  # What runs no handlers needs no keys.
    leash.say(Hello(told, chosen.store.location, seconds))
    _warn(chosen, order.reference)
    serve(served, leash)


def _warn(app: Windlass, reference: str) -> None:
    """Log what is surely not meant."""
    for warning in app.resolved.warnings:
        log.warning("setting.unknown", problem=warning)
    if not list(app.registry):
        log.warning(
            "worker.serves_nothing",
            problem=f"no handler is registered in {reference}",
            remedy="import the modules that have them, there or with --imports",
        )
