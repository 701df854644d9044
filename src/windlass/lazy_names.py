"""Owns names of a package that are imported when they are first used, so that importing it is fast.

Type checkers see the imports, in a block that never runs (`TYPE_CHECKING`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module


def lazy_names(package: str, homes: Mapping[str, Iterable[str]]) -> Callable[[str], object]:
    """Return the `__getattr__` of a package: `homes` has, for each module, its names.

    A name is looked up once: the package keeps what was found.
    """
    home_of = {name: module for module, names in homes.items() for name in names}

    def look_up(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
        found = getattr(import_module(home_of[name]), name)
        setattr(sys.modules[package], name, found)
        return found

    return look_up
