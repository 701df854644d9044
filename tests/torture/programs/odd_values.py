"""Owns the exceptions and results with which the handlers of the torture tests try a worker."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from windlass import Cancel, RetryAfter

# -- handlers that raise -----------------------------------------------------------------------


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    def __repr__(self) -> str:
        raise RuntimeError("none at all")


class HollowRetryAfter(RetryAfter):
    """Forgets to call its parent, and so has no time to be tried again at."""

    def __init__(self) -> None:
        pass


def cyclic() -> Exception:
    first, second = ValueError("first of the cycle"), KeyError("second of the cycle")
    first.__cause__, second.__cause__ = second, first
    return first


def nested(depth: int) -> Exception:
    error: Exception = ValueError("innermost")
    for _ in range(depth):
        error = ExceptionGroup("layer", [error])
    return error


RAISED: dict[str, Any] = {
    "SystemExit": lambda: SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt,
    "CancelledError": asyncio.CancelledError,
    "GeneratorExit": GeneratorExit,
    "StopIteration": lambda: StopIteration(1),
    "StopAsyncIteration": StopAsyncIteration,
    "unprintable": Unprintable,
    "huge": lambda: ValueError("x" * 50_000_000),
    "cyclic": cyclic,
    "nul": lambda: ValueError("before\x00after"),
    "surrogate": lambda: ValueError("before\ud800after"),
    "hollow": HollowRetryAfter,
    "nested": lambda: nested(sys.getrecursionlimit() * 2),
}


# -- handlers that return the unspeakable ------------------------------------------------------


def circle() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


class Opaque:
    """Has no JSON form."""


class Explosive:
    """Breaks whoever asks for its JSON form."""

    def model_dump(self, mode: str) -> object:
        raise RuntimeError("boom")


RETURNED: dict[str, Any] = {
    "nul": lambda: "before\x00after",
    "surrogate": lambda: "before\ud800after",
    "nan": lambda: float("nan"),
    "infinity": lambda: [float("-inf")],
    "opaque": Opaque,
    "explosive": Explosive,
    "circle": circle,
    "cancel for no text": lambda: Cancel(ValueError("not text")),  # type: ignore[arg-type]
    "cancel for a surrogate": lambda: Cancel("before\ud800after\x00"),
}
