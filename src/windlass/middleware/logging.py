"""Owns the log lines about a run: its start, and its end with the time it took."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from windlass.context import Context
from windlass.core.outcomes import Suspended
from windlass.observe.run_lines import FINISHED, STARTED, run_lines
from windlass.registry import CallNext


async def log_runs(context: Context, call_next: CallNext) -> Any:
    """Log the start and the end of a run. What becomes of the job is logged when it is settled."""
    began = time.perf_counter()
    is_logged = context.log.is_enabled_for(logging.INFO)
    posted = run_lines() if is_logged and _is_open(context) else None
    if posted is not None:
        fields = posted.started(context.job, context.worker_id)
    elif is_logged:
        context.log.info(STARTED)
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
        posted.finished(fields, time.perf_counter() - began)
    elif is_logged:
        context.log.info(FINISHED, duration=_since(began))
    return value


def _is_open(context: Context) -> bool:
    """Say whether there is nothing that the lines of a run must not say."""
    return not context.secrets and not context.redaction.hides("duration")


def _since(began: float) -> float:
    return round(time.perf_counter() - began, 6)
