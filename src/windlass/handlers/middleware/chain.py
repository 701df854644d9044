"""Owns the composition of middleware around a handler, the first one outermost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from windlass.handlers.context import Context
from windlass.handlers.middleware.run_log import log_runs, logged
from windlass.handlers.provided import needs_of
from windlass.handlers.registry import Middleware

Run = Callable[[Context], Awaitable[Any]]


def chain(middleware: Sequence[Middleware], run: Run) -> Run:
    """Return a run that passes through all middleware, in order, before the handler."""
    for layer in reversed(middleware):
        if layer is log_runs:  # In every app: this saves a call and two objects for each job.
            run = partial(logged, run)
        else:
            run = partial(_through_asking if needs_of(layer) else _through, layer, run)
    return run


def _through(layer: Middleware, run: Run, context: Context) -> Awaitable[Any]:
    return layer(context, partial(run, context))


def _through_asking(layer: Any, run: Run, context: Context) -> Awaitable[Any]:
    answer: Awaitable[Any] = layer(context, partial(run, context), **context.provided.given(layer))
    return answer
