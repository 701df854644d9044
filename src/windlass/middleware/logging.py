"""Owns the log lines about a run: its start, and its end with the time it took."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from windlass.context import Context
from windlass.core.outcomes import Suspended
from windlass.observe.run_lines import RUNS, run_lines
from windlass.registry import CallNext

_is_enabled_for = logging.getLogger(RUNS).isEnabledFor


async def log_runs(context: Context, call_next: CallNext) -> Any:
    """Log the start and the end of a run. What becomes of the job is logged when it is settled."""
    began = time.perf_counter()
    is_logged = _is_enabled_for(logging.INFO)
    # What a run with secrets must not say is for Logger.info to find out.
    posted = run_lines(context.redaction) if is_logged and not context.secrets else None
    if posted is not None:
        start = posted.started(context.job, context.worker_id)
    elif is_logged:
        context.log.info("job.started")
    try:
        value = await call_next()
    except asyncio.CancelledError:
        context.log.warning("job.interrupted", duration=_since(began))
        raise
    except Suspended:
        context.log.info("job.suspended", duration=_since(began))
        raise
    except BaseException as error:
        context.log.warning("job.raised", duration=_since(began), error=type(error).__qualname__)
        raise
    if posted is not None:
        posted.finished(start, time.perf_counter() - began)
    elif is_logged:
        context.log.info("job.finished", duration=_since(began))
    return value


def _since(began: float) -> float:
    return round(time.perf_counter() - began, 6)
