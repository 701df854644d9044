"""Owns the beginning of a child process for isolated jobs: it imports the app, and serves."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from functools import partial
from multiprocessing import spawn
from typing import Any, NoReturn, cast

from windlass.app.app import Windlass
from windlass.core.errors import ConfigError
from windlass.core.failure import describe
from windlass.core.redaction import Redaction
from windlass.observe.discretion import redact_lines
from windlass.observe.logs import configure_logging
from windlass.resources import Resources
from windlass.runtime import loading
from windlass.runtime.blackbox import BlackBox
from windlass.runtime.child import Child
from windlass.runtime.tether import Tether, take_place
from windlass.runtime.words import Fit, Recipe, Unfit
from windlass.settings import LogFormat, LogLevel


def main() -> NoReturn:
    """Serve as a child: `main.py PARENT TETHER BOX`, which are its pid and two descriptors."""
    parent, tether_fd, box_fd = map(int, sys.argv[1:4])
    tether, box = take_place(parent, tether_fd, box_fd)
    recipe = tether.receive()
    if not isinstance(recipe, Recipe):
        os._exit(0)  # The worker has changed its mind.
    try:
        with loading.in_child(partial(_give_up, tether)):
            app = _follow(recipe)
        child = _child(app, tether, box)
    except BaseException as error:  # noqa: BLE001 - also what a module does to end its program.
        told = describe(error)
        _give_up(tether, f"{told}\n{told.traceback}")
    tether.send(Fit(kinds=tuple(app.registry)))
    child.serve()


def _give_up(tether: Tether, why: str) -> NoReturn:
    tether.send(Unfit(why=why))
    os._exit(1)


def _follow(recipe: Recipe) -> Windlass:
    """Import what the worker has imported, and return its app."""
    sys.argv[:] = recipe.arguments
    if recipe.logging is not None:
        level, form = recipe.logging
        configure_logging(cast("LogLevel", level), cast("LogFormat", form))
    if recipe.main:
        spawn.prepare(dict(recipe.main))
    for module in recipe.modules:
        importlib.import_module(module)
    module, _, path = recipe.home.partition(":")
    app: Any = importlib.import_module(module)
    for name in path.split("."):
        app = getattr(app, name, None)
    if not isinstance(app, Windlass):
        raise ConfigError(
            f"a child process finds no app at {recipe.home}: assign it to a name when its module "
            "is imported, not under `if __name__ == '__main__'`"
        )
    app.configure(**recipe.settings)
    redact_lines(app.settings.redact)
    if not app.store.capabilities.shared:
        app.store = cast("Any", _Elsewhere(app.store.location))
    return app


def _child(app: Windlass, tether: Tether, box: BlackBox) -> Child:
    resources = Resources(app.providers)
    child = Child(
        tether,
        box,
        registry=app.registry,
        middleware=app.layers,
        transact=lambda settling: app.store.transaction(settling),
        store=lambda: app.store,
        max_retries=app.settings.max_retries,
        resources=resources,
        redaction=Redaction(app.settings.redact),
    )
    child.call(_greet(app, resources))
    return child


async def _greet(app: Windlass, resources: Resources) -> None:
    await resources.open()
    try:
        for hook in app.child_hooks:
            answer = hook(**resources.given(hook))
            if inspect.isawaitable(answer):
                await answer
    except BaseException:
        await resources.close()
        raise


class _Elsewhere:
    """Stands for a store in the worker's own memory, which its children cannot reach."""

    def __init__(self, location: str) -> None:
        self.location = location

    def __getattr__(self, name: str) -> Any:
        raise ConfigError(
            f"{self.location} is in the memory of the worker, and an isolated handler runs in "
            "another process: use sqlite:///... or postgresql://..., or do not isolate it"
        )
