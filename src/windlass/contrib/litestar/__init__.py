"""Windlass in Litestar: the app as a dependency, the page, and `litestar windlass ...`.

`Litestar(route_handlers=[...], plugins=[WindlassPlugin(jobs)])`.
"""

from windlass.contrib.litestar.plugin import WindlassApp, WindlassPlugin

__all__ = ["WindlassApp", "WindlassPlugin"]
