"""Owns how watchers are called at the end of a run, once the outcome of the job is known."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal

from msgspec import Struct

from windlass.handlers.context import Context
from windlass.handlers.registry import Middleware

End = Literal["returned", "raised", "interrupted"]


class RunEnd(Struct, frozen=True, kw_only=True):
    """How a run ended, including problems of its payload, its result or its process."""

    end: End
    duration: timedelta
    completed: bool = False
    """Whether the job is completed; a snoozed or cancelled job is not."""
    result: Any = None
    error: BaseException | None = None
    """The exception that failed the run, if one did."""


class Watcher:
    """Middleware that is called with the end of each run.

    The return value that passes through the middleware is not enough: at that point it is unknown
    whether the result can be stored, and an invalid payload or a dead process is not seen at all.
    """

    is_around = False
    """Whether it is also called around the run, as other middleware is."""

    async def ended(self, context: Context, end: RunEnd) -> None:
        """Handle the end of a run; raises nothing but a cancellation of its task."""
        raise NotImplementedError


def watchers_in(middleware: Sequence[Any]) -> tuple[Watcher, ...]:
    """Return the middleware that is called with the ends of runs."""
    return tuple(layer for layer in middleware if isinstance(layer, Watcher))


def around(middleware: Sequence[Any]) -> tuple[Middleware, ...]:
    """Return the middleware that is called around runs."""
    return tuple(layer for layer in middleware if not isinstance(layer, Watcher) or layer.is_around)


async def tell_end(watchers: Sequence[Watcher], context: Context, end: RunEnd) -> None:
    """Call all watchers with the end of a run."""
    for watcher in watchers:
        await watcher.ended(context, end)
