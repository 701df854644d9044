"""Owns the recipe by which a child process gets an app: the same imports again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windlass.core.errors import ConfigError
from windlass.observability.logs import logging_in_force
from windlass.settings import Settings
from windlass.settings.encryption_keys import written
from windlass.worker.isolation.protocol import Recipe

if TYPE_CHECKING:
    from windlass.app.app import Windlass

_PASSED_SETTINGS = (
    "url",
    "schema",
    "listen_url",
    "pool_size",
    "pool_overflow",
    "pool_recycle",
    "space",
    "max_payload",
    "max_result",
    "max_stream",
    "max_stream_chunks",
    "max_retries",
    "enqueue_timeout",
)
_HOW = "a child process imports the module of an isolated handler again"


def recipe_of(app: Windlass, settings: Settings) -> Recipe:
    """Return how a child process gets this app.

    Raises:
        ConfigError: it cannot: the app has no name in a module, or there is no module to import.
    """
    modules = dict.fromkeys(app.registry[kind].module for kind in app.registry)
    home = app.home or _home(app, [*modules])
    needed = [home.partition(":")[0], *modules]
    return Recipe(
        home=home,
        modules=tuple(dict.fromkeys([*settings.imports, *(each for each in needed if each)])),
        main=_main() if "__main__" in needed else {},
        path=tuple(sys.path),
        arguments=tuple(sys.argv),
        settings=dict(_passed_settings(settings)),
        logging=logging_in_force(),
    )


def _home(app: Windlass, likely: list[str]) -> str:
    others = [name for name in sys.modules if name != "__main__"]
    for name in [*likely, *others, "__main__"]:
        module: Any = sys.modules.get(name)
        for attribute, value in list(getattr(module, "__dict__", {}).items()):
            if value is app:
                return f"{name}:{attribute}"
    raise ConfigError(
        f"{_HOW}, but this app is not assigned to a name in any module; assign it at module level"
    )


def _main() -> dict[str, str]:
    # The same rules as multiprocessing.
    # Imported here: only isolated jobs need multiprocessing.
    from multiprocessing.spawn import get_preparation_data

    found = get_preparation_data("windlass-child")
    main = {name: str(found[name]) for name in found if name.startswith("init_main_from")}
    file = main.get("init_main_from_path")
    if not main or (file is not None and not Path(file).exists()):
        raise ConfigError(
            f"{_HOW}, but this program has no file to import; move the handlers into a module"
        )
    return main


def _passed_settings(settings: Settings) -> Iterator[tuple[str, str | int | float]]:
    if settings.encryption_keys:
        # Sent over a socket of its own, which no other process can read.
        yield (
            "encryption_keys",
            ",".join(written(key, named=True) for key in settings.encryption_keys),
        )
    if settings.spaces:
        yield "spaces", ",".join(map(str, settings.spaces))
    if settings.redact:
        yield "redact", ",".join(settings.redact)
    for name in _PASSED_SETTINGS:
        value = getattr(settings, name)
        yield name, value.total_seconds() if isinstance(value, timedelta) else value
