"""Owns the log lines about a run: its start, and its end with its duration."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from windlass.core.jobs.outcomes import Suspended
from windlass.handlers.context import Context
from windlass.handlers.registry import CallNext
from windlass.observability.run_log_lines import RUNS, run_lines

_is_enabled_for = logging.getLogger(RUNS).isEnabledFor


def log_runs(context: Context, call_next: CallNext) -> Awaitable[Any]:
    """Log the start and the end of a run. The outcome of the job is logged when it is settled."""
    return logged(lambda _: call_next(), context)


async def logged(run: Callable[[Context], Awaitable[Any]], context: Context) -> Any:
    """Log the start and the end of a run that is called with its context."""
    began = time.perf_counter()
    is_logged = _is_enabled_for(logging.INFO)
    # The lines of a run with secrets are masked by Logger.info.
    state = context.run_state
    posted = run_lines(state.redaction) if is_logged and not state.secrets else None
    start: Any = None
    if posted is not None:
        start = posted.started(context.job, context.worker_id)
    elif is_logged:
        context.log.info("job.started")
    try:
        value = await run(context)
    except asyncio.CancelledError:
        context.log.warning("job.interrupted", duration=_since(began))
        raise
    except Suspended:
        context.log.info("job.suspended", duration=_since(began))
        raise
    except BaseException as error:
        # The line about the transition has the error and the traceback. After a transaction that
        # completed the job there is no such line, so this one is a warning.
        say = context.log.warning if state.is_over else context.log.debug
        say("job.raised", duration=_since(began), error=type(error).__qualname__)
        raise
    seconds = time.perf_counter() - began
    if value is not None or state.steps is not None or context.job.steps:
        # The result may be rejected, or steps may be missing: then the run has not succeeded.
        # A lambda would make cell variables of these names, which are slower in every run.
        if posted is not None:
            state.log_finished = partial(posted.finished, start, seconds)
        else:
            state.log_finished = partial(_finished, context, seconds)
    elif posted is not None:
        posted.finished(start, seconds)  # The common case.
    elif is_logged:
        _finished(context, seconds)
    return value


def _finished(context: Context, seconds: float) -> None:
    context.log.info("job.finished", duration=round(seconds, 6))


def _since(began: float) -> float:
    return round(time.perf_counter() - began, 6)
