"""Owns Windlass in Starlette: a lifespan that opens and closes an app, and the app of a request.

`Starlette(lifespan=windlass_lifespan(jobs))`, and `windlass_app(request)` in a route.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Unpack

from starlette.requests import HTTPConnection

from windlass.app import Windlass
from windlass.contrib.serving import opened
from windlass.core.errors import ConfigError
from windlass.handlers.provided import gives_app
from windlass.settings import FlagArguments

__all__ = ["Lifespan", "windlass_app", "windlass_lifespan"]

STATE = "windlass"
"""The name of the app in the state of a lifespan, and so of every request."""
Lifespan = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any] | None]]
"""What Starlette and FastAPI take as `lifespan`."""


def windlass_lifespan(
    app: Windlass,
    *,
    worker: bool = False,
    lifespan: Lifespan | None = None,
    **flags: Unpack[FlagArguments],
) -> Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any]]]:
    """Return a lifespan that opens the store of an app, and closes it at the end.

    With `worker`, a worker runs in the same process, which is meant for development: it takes the
    `flags` (`concurrency=10`), and drains before anything is closed. `lifespan` is one of your own:
    it begins before the worker, and ends after it, and what it yields is in the state as well.

    Raises:
        ConfigError: there are flags, and no worker that takes them.

    Example:
        `Starlette(routes=routes, lifespan=windlass_lifespan(jobs, lifespan=database))`
    """
    if flags and not worker:
        raise ConfigError(
            f"windlass_lifespan() takes {', '.join(flags)} only for a worker; add worker=True"
        )

    @asynccontextmanager
    async def around(server: Any) -> AsyncIterator[Mapping[str, Any]]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(opened(app))
            if hasattr(server, "dependency_overrides"):  # FastAPI's, which tests set.
                stack.enter_context(app.providers.following(server))
            own = await stack.enter_async_context(lifespan(server)) if lifespan else None
            if worker:
                await stack.enter_async_context(app.running(**flags))
            yield {**(own or {}), STATE: app}

    return around


def windlass_app(connection: HTTPConnection) -> Windlass:
    """Return the app of a request, or of a websocket; in FastAPI a dependency.

    Raises:
        ConfigError: the server was started without `windlass_lifespan`.
    """
    app = getattr(connection.state, STATE, None)
    if not isinstance(app, Windlass):
        raise ConfigError(
            "this request has no Windlass app; pass lifespan=windlass_lifespan(app) to the "
            "application that serves it, and use its TestClient in a `with` block"
        )
    return app


gives_app(windlass_app)
