"""Owns the middleware that measures runs for a program with metrics of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from windlass.handlers.context import Context
from windlass.handlers.middleware.watching import End, RunEnd, Watcher
from windlass.handlers.registry import CallNext
from windlass.observability.logs import get_logger

log = get_logger("windlass.measuring")
Measured = Callable[[Context, End, float], None]


class MeasureRuns(Watcher):
    """Middleware that reports how each run ended, and how many seconds it took.

    A worker's own metrics do not need it. Use it for facts that those do not have, like a label of
    your own. An error in the callback is only logged.

    Example: `app = Windlass(middleware=[MeasureRuns(lambda ctx, end, seconds:
    statsd.timing(...))])`
    """

    def __init__(self, measured: Measured) -> None:
        self._measured = measured

    async def __call__(self, context: Context, call_next: CallNext) -> Any:  # noqa: ARG002 - as all.
        """Do nothing around the run: only its end is measured."""
        return await call_next()

    async def ended(self, context: Context, end: RunEnd) -> None:
        """Report how long the run took."""
        try:
            self._measured(context, end.end, end.duration.total_seconds())
        except BaseException:
            log.exception("measure.failed", kind=context.job.kind)
