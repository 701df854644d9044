"""Owns what a process under torture does otherwise than it would: `module:NAME` gets a value.

A supervisor hands its environment on to its workers, and so the patches that are named there.
"""

from __future__ import annotations

import importlib
import json
import os
from typing import Any

VARIABLE = "TORTURE_PATCHES"


def patch_as_told() -> None:
    """Patch what the environment names; a process does so as early as it can."""
    for name, value in json.loads(os.environ.get(VARIABLE, "{}")).items():
        patch(name, value)


def patch(name: str, value: object) -> None:
    """Set a module's variable, or the default of a keyword: `module:NAME`, `module:f.keyword`."""
    module, _, path = name.partition(":")
    *way, last = path.split(".")
    thing: Any = importlib.import_module(module)
    for step in way:
        thing = getattr(thing, step)
    if callable(thing):
        assert last in thing.__kwdefaults__, name
        thing.__kwdefaults__[last] = value
    else:
        assert hasattr(thing, last), name
        setattr(thing, last, value)
