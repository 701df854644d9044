"""Owns how a Flask application and a Windlass app are put together: settings, contexts, command."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, get_type_hints

from flask import Flask, current_app
from flask.ctx import AppContext

from windlass.app import Windlass
from windlass.contrib.flask.command import windlass_command
from windlass.core.claims.room import Pool
from windlass.core.errors import ConfigError
from windlass.handlers.context import Context
from windlass.handlers.registry import CallNext
from windlass.settings import FlagArguments

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "windlass"
"""The name in the `extensions` of a Flask application, and of the command."""
_SETTINGS = tuple(get_type_hints(FlagArguments))


class FlaskWindlass:
    """A Windlass app for an application that a factory makes later: `FlaskWindlass(jobs)`.

    Example:
        `background = FlaskWindlass(jobs)`, and in the factory `background.init_app(app)`
    """

    def __init__(self, app: Windlass, flask_app: Flask | None = None) -> None:
        self.app = app
        if flask_app is not None:
            self.init_app(flask_app)

    def init_app(self, flask_app: Flask) -> None:
        """Put the app into a Flask application: see `init_app`."""
        init_app(flask_app, self.app)


def init_app(flask_app: Flask, app: Windlass) -> None:
    """Let handlers run inside an app context of Flask's, and add the command `flask windlass`.

    `WINDLASS_URL`, `WINDLASS_CONCURRENCY` and the other settings in `flask_app.config` override
    those of the environment. If a factory makes several Flask applications, handlers run in the
    context of the last one.

    Raises:
        ConfigError: a setting is wrong, or the store is in use and they name another one.
    """
    if settings := _settings(flask_app.config):
        app.configure(**settings)
    known = next((each for each in app.layers if isinstance(each, Contexts)), None)
    if known is None:
        contexts = Contexts(app, flask_app)
        app.add_middleware(contexts)
        app.on_call_start(contexts.push)
        app.on_call_end(contexts.pop)
    else:
        known.flask_app = flask_app
    flask_app.extensions[NAME] = app
    flask_app.cli.add_command(windlass_command, NAME)


def windlass_app() -> Windlass:
    """Return the app of the current Flask application.

    Raises:
        ConfigError: `init_app` was not called for it.
    """
    app = current_app.extensions.get(NAME)
    if not isinstance(app, Windlass):
        raise ConfigError(
            f"the Flask application {current_app.name!r} has no Windlass app; call "
            "windlass.contrib.flask.init_app(flask_app, jobs)"
        )
    return app


class Contexts:
    """Puts an app context around each handler; `teardown_appcontext` runs where the handler ran.

    For a `def` handler that is its own thread: what it opened there is closed there. So its context
    is pushed by hooks in that thread, and that of an `async def` handler by a middleware.
    """

    def __init__(self, app: Windlass, flask_app: Flask) -> None:
        self._registry = app.registry
        self.flask_app = flask_app
        self._pushed: ContextVar[AppContext | None] = ContextVar("pushed", default=None)

    async def __call__(self, context: Context, call_next: CallNext) -> Any:
        """Run an `async def` handler inside an app context."""
        if self._registry[context.kind].target.pool is not Pool.LOOP:
            return await call_next()
        with self.flask_app.app_context():
            return await call_next()

    def push(self) -> None:
        """Push a context before a call in a thread."""
        self._pushed.set(None)
        pushed = self.flask_app.app_context()
        pushed.push()
        self._pushed.set(pushed)

    def pop(self) -> None:
        """Pop the context of a call, which tears down what the handler opened."""
        if (pushed := self._pushed.get()) is not None:
            self._pushed.set(None)
            pushed.pop()


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of Windlass among those of Flask."""
    prefix = "WINDLASS_"
    given = {
        name.removeprefix(prefix).lower(): value
        for name, value in config.items()
        if name.startswith(prefix)
    }
    if unknown := sorted(given.keys() - set(_SETTINGS)):
        names = ", ".join(prefix + each.upper() for each in unknown)
        raise ConfigError(f"there is no setting {names}; docs/configuration.md lists all of them")
    return given
