"""Owns the span around a run, as a middleware: `trace_runs`."""

from __future__ import annotations

from typing import Any

from windlass.core.failures.describe import describe
from windlass.handlers.context import Context
from windlass.handlers.registry import CallNext
from windlass.observability.traces import tracing_in_force

_FAILURES = (Exception, SystemExit, KeyboardInterrupt)


async def trace_runs(context: Context, call_next: CallNext) -> Any:
    """Put a span around a run, linked to its producer's, if the program uses OpenTelemetry.

    It is installed by default: see the setting `traces`.
    """
    tracing = tracing_in_force()
    if tracing is None:
        return await call_next()
    with tracing.running(context.job, context.worker_id) as span:
        try:
            return await call_next()
        except _FAILURES as error:
            tracing.failed(span, describe(error, context.redaction))
            raise
        except BaseException:  # The run was interrupted, or continues later: no failure.
            tracing.interrupted(span)
            raise
