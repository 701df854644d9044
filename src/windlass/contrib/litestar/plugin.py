"""Owns `WindlassPlugin`: how a Litestar application and a Windlass app are put together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Unpack

from click import Group
from litestar import Litestar
from litestar.config.app import AppConfig
from litestar.connection import ASGIConnection
from litestar.di import NamedDependency, Provide
from litestar.plugins import CLIPlugin, InitPlugin
from litestar.types import Guard

from windlass.app import Windlass
from windlass.contrib.litestar.command import windlass_command
from windlass.contrib.litestar.page import page_handler
from windlass.contrib.serving import opened
from windlass.core.errors import ConfigError
from windlass.settings import FlagArguments

WindlassApp = NamedDependency[Windlass]
"""The app, as the type of a parameter of a route handler: `windlass: WindlassApp`."""
Connection = ASGIConnection[Any, Any, Any, Any]
AccessFunction = Callable[[Connection], Any]
"""Returns the `windlass.web.Access` of a user by the program's own login, or None to refuse;
plain or async."""


class WindlassPlugin(InitPlugin, CLIPlugin):
    """A Windlass app in a Litestar application.

    The store is open while the application is. Route handlers take the app as `windlass:
    WindlassApp`, or under another `key`. With `worker`, a worker runs in the same process, which is
    meant for development: it takes the `flags` (`concurrency=10`), begins after your `on_startup`
    hooks, and drains before your lifespan ends.

    With `page`, the web page is under that path: your middleware and `guards` come first, and
    `access` returns who the user is and what they may do. `name` is shown as a badge on every page.

    Raises:
        ConfigError: there are flags and no worker, or arguments of a page and no `page`.

    Example:
        `Litestar(route_handlers=[order], plugins=[WindlassPlugin(jobs, page="/jobs", access=who)])`
    """

    def __init__(
        self,
        app: Windlass,
        *,
        key: str = "windlass",
        worker: bool = False,
        page: str | None = None,
        access: AccessFunction | None = None,
        guards: Sequence[Guard] = (),
        name: str | None = None,
        **flags: Unpack[FlagArguments],
    ) -> None:
        if flags and not worker:
            raise ConfigError(
                f"WindlassPlugin() takes {', '.join(flags)} only for a worker; add worker=True"
            )
        if page is None and (access is not None or guards or name is not None):
            raise ConfigError(
                'WindlassPlugin() takes access, guards and name only for a page; add page="/jobs"'
            )
        self.app = app
        """The app."""
        self._key = key
        self._worker = worker
        self._flags = flags
        self._pages = [] if page is None else [page_handler(app, page, access, guards, name)]

    def on_app_init(self, app_config: AppConfig) -> AppConfig:
        """Add the dependency, the lifespan and the page to an application."""
        app = self.app

        async def provide_app() -> Windlass:
            return app

        app_config.dependencies.setdefault(self._key, Provide(provide_app))
        # For annotations of names that are imported only for type checkers.
        names = {"Windlass": Windlass, "WindlassApp": WindlassApp}
        app_config.signature_namespace = names | app_config.signature_namespace
        app_config.route_handlers.extend(self._pages)
        app_config.lifespan.insert(0, lambda _: opened(app))
        if self._worker:
            self._add_worker(app_config)
        return app_config

    def on_cli_init(self, cli: Group) -> None:
        """Add the command `litestar windlass`."""
        cli.add_command(windlass_command())

    def _add_worker(self, app_config: AppConfig) -> None:
        stack = AsyncExitStack()

        @asynccontextmanager
        async def until_drained(_: Litestar) -> AsyncIterator[None]:
            async with stack:
                yield

        async def start_worker() -> None:
            await stack.enter_async_context(self.app.running(**self._flags))

        # Last in both: it starts after the hooks of the program, and ends before its lifespan.
        app_config.lifespan.append(until_drained)
        app_config.on_startup.append(start_worker)
