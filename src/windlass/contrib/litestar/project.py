"""Owns the app as a worker's process finds it: `windlass.contrib.litestar.project:jobs`.

Its attribute loads the application or factory that LITESTAR_APP names, as the command `litestar`
does.
"""

from __future__ import annotations

import importlib
import os
from functools import cache

from litestar import Litestar

from windlass.app import Windlass
from windlass.contrib.litestar.command import HOME
from windlass.contrib.litestar.plugin import WindlassPlugin
from windlass.core.errors import ConfigError

ATTRIBUTE = "jobs"


def __getattr__(name: str) -> Windlass:
    if name != ATTRIBUTE:
        raise AttributeError(name)
    return _loaded()


@cache
def _loaded() -> Windlass:
    place = os.environ.get("LITESTAR_APP", "")
    module, _, attribute = place.partition(":")
    if not (module and attribute):
        raise ConfigError(
            f"LITESTAR_APP must be module:application, got {place!r}; run `litestar windlass ...`, "
            "which sets it"
        )
    application = getattr(importlib.import_module(module), attribute, None)
    if not isinstance(application, Litestar) and callable(application):
        application = application()
    if not isinstance(application, Litestar):
        raise ConfigError(f"LITESTAR_APP must name a Litestar application, got {place!r}")
    try:
        app = application.plugins.get(WindlassPlugin).app
    except KeyError:
        raise ConfigError(
            f"the Litestar application {place} has no Windlass app; add WindlassPlugin(jobs) to "
            "its plugins"
        ) from None
    app.home = HOME
    return app
