"""Owns the middleware that measures runs for whoever wants to count in a way of their own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Literal

from windlass.context import Context
from windlass.observe.logs import get_logger
from windlass.registry import CallNext

log = get_logger("windlass.measuring")
End = Literal["returned", "raised", "interrupted"]
Measured = Callable[[Context, End, float], None]


class MeasureRuns:
    """Middleware that tells how each run ended, and how many seconds it took.

    A worker's own metrics need none of it: they come by themselves. This is for what those do not
    know, like a label of your own. An error in what is called is logged, and that is all.

    Example:
        `app = Windlass(middleware=[MeasureRuns(lambda ctx, end, seconds: statsd.timing(...))])`
    """

    def __init__(self, measured: Measured) -> None:
        self._measured = measured

    async def __call__(self, context: Context, call_next: CallNext) -> Any:
        """Measure a run."""
        began = time.perf_counter()
        try:
            value = await call_next()
        except asyncio.CancelledError:
            self._tell(context, "interrupted", began)
            raise
        except BaseException:
            self._tell(context, "raised", began)
            raise
        self._tell(context, "returned", began)
        return value

    def _tell(self, context: Context, end: End, began: float) -> None:
        try:
            self._measured(context, end, time.perf_counter() - began)
        except Exception:
            log.exception("measure.failed", kind=context.job.kind)
