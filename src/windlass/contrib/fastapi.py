"""Owns Windlass in FastAPI: the app of a request as a dependency; the rest is Starlette's.

`FastAPI(lifespan=windlass_lifespan(jobs))`, and `jobs: WindlassApp` as a parameter of a route.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends

from windlass.app import Windlass
from windlass.contrib.starlette import Lifespan, windlass_app, windlass_lifespan

__all__ = ["Lifespan", "WindlassApp", "windlass_app", "windlass_lifespan"]

WindlassApp = Annotated[Windlass, Depends(windlass_app)]
"""The app of a request, as the type of a parameter; tests override it by `windlass_app`."""
