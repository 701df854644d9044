"""Owns a store that counts what it is asked, and how tests await a worker."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

from tests.support.app_on_store import Bed, Through


def awaited(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in an event loop of its own."""

    @wraps(test)
    def run(bed: Bed, **given: Any) -> None:
        assert bed.url, "a database is made here, since that takes an event loop of its own"
        asyncio.run(test(bed=bed, **given))

    return run


class Counting(Through):
    """Counts the calls of a store."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        self.calls[name] += 1
        return super().__getattr__(name)
