"""Owns Windlass in FastAPI: the app of a request as a dependency; the rest is Starlette's.

`FastAPI(lifespan=windlass_lifespan(jobs))`, and `jobs: WindlassApp` as a parameter of a route.
Handlers take what routes take: `session: Annotated[Session, Depends(get_session)] = Inject`.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, FastAPI

from windlass.app import Windlass
from windlass.contrib.starlette import Lifespan, windlass_app, windlass_lifespan

__all__ = ["Lifespan", "WindlassApp", "share_overrides", "windlass_app", "windlass_lifespan"]

WindlassApp = Annotated[Windlass, Depends(windlass_app)]
"""The app of a request, as the type of a parameter; tests override it by `windlass_app`."""


def share_overrides(api: FastAPI, app: Windlass) -> None:
    """Let `api.dependency_overrides` hold for the handlers of an app, as for routes.

    During a `windlass_lifespan` they do anyway; this is for tests that start no server.

    Example:
        `share_overrides(api, jobs)`, and in a test `api.dependency_overrides[get_session] = fake`
    """
    app.providers.follow(api)
