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
from windlass.core.failures.describe import describe
from windlass.core.jobs.streams import StreamLimits
from windlass.core.payloads.redaction import Redaction
from windlass.handlers.provided import Provided
from windlass.observability.log_masking import redact_lines
from windlass.observability.logs import configure_logging
from windlass.process.exits.black_box import BlackBox
from windlass.settings import LogFormat, LogLevel
from windlass.worker.isolation.child import Child
from windlass.worker.isolation.child_channel import ChildChannel, become_child
from windlass.worker.isolation.import_guard import in_child
from windlass.worker.isolation.protocol import Fit, Recipe, Unfit


def main() -> NoReturn:
    """Serve as a child: `main.py PARENT CHANNEL BOX`, which are its pid and two descriptors."""
    parent, channel_fd, box_fd = map(int, sys.argv[1:4])
    channel, box = become_child(parent, channel_fd, box_fd)
    recipe = _receive_recipe(channel)
    try:
        with in_child(partial(_give_up, channel)):
            app = _follow(recipe)
        child = _child(app, channel, box)
    except BaseException as error:  # noqa: BLE001 - also what a module does to end its program.
        cause = describe(error)
        _give_up(channel, f"{cause}\n{cause.traceback}")
    channel.send(Fit(kinds=tuple(app.registry)))
    child.serve()


def _receive_recipe(channel: ChildChannel) -> Recipe:
    while (messages := channel.receive()) is not None:
        for message in messages:
            if isinstance(message, Recipe):
                return message
    os._exit(0)  # The worker has changed its mind.


def _give_up(channel: ChildChannel, why: str) -> NoReturn:
    channel.send(Unfit(why=why))
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
            f"a child process found no app at {recipe.home}; assign the app at module level, not "
            "under `if __name__ == '__main__'`"
        )
    app.configure(**cast("dict[str, Any]", recipe.settings))
    redact_lines(app.settings.redact)
    if not app.store.capabilities.shared:
        app.store = cast("Any", _Elsewhere(app.store.location))
    return app


def _child(app: Windlass, channel: ChildChannel, box: BlackBox) -> Child:
    provided = Provided(app.providers)
    child = Child(
        channel,
        box,
        registry=app.registry,
        middleware=app.layers,
        store=lambda: app.store,
        max_retries=app.settings.max_retries,
        max_result=app.settings.max_result,
        stream_limits=StreamLimits(app.settings.max_stream_chunks, app.settings.max_stream),
        provided=provided,
        redaction=Redaction(app.settings.redact),
    )
    child.call(_greet(app, provided))
    return child


async def _greet(app: Windlass, provided: Provided) -> None:
    await provided.open()
    try:
        for hook in app.child_hooks:
            answer = hook(**provided.given(hook))
            if inspect.isawaitable(answer):
                await answer
    except BaseException:
        await provided.close()
        raise


class _Elsewhere:
    """Stands for a store in the worker's own memory, which its children cannot reach."""

    def __init__(self, location: str) -> None:
        self.location = location

    def __getattr__(self, name: str) -> Any:
        raise ConfigError(
            f"{self.location} lives in the memory of the worker, and an isolated handler runs in "
            "another process; use sqlite:///... or postgresql://..., or do not isolate the "
            "handler"
        )
