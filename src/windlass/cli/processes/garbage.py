"""Owns garbage collections during imports: there are none."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collections() -> Iterator[None]:
    """Collect no garbage in this block, which imports modules; what it makes is not visited later.

    Imports make a hundred thousand objects that stay. Collections that look for garbage among them
    take a tenth of a process's start.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # Otherwise the next collection would visit all of them.
        gc.enable()
