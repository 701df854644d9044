"""Owns garbage collections during imports: there are none."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collections(*, keep: bool = True) -> Iterator[None]:
    """Collect no garbage in this block, which imports modules.

    Imports make a hundred thousand objects that stay. Collections that look for garbage among them
    take a tenth of a process's start. All objects that there are now are kept to the end of the
    process, and never visited again; a process that is not ours must not `keep` them.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if keep:
            gc.freeze()
        gc.enable()
