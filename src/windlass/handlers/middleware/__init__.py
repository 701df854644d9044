"""Middleware around a run: the chain, and the middleware that ships with Windlass."""

from windlass.handlers.middleware.callbacks import Callbacks
from windlass.handlers.middleware.chain import chain
from windlass.handlers.middleware.measuring import MeasureRuns
from windlass.handlers.middleware.run_log import log_runs
from windlass.handlers.middleware.tracing import trace_runs
from windlass.handlers.middleware.watching import RunEnd, Watcher, tell_end
from windlass.handlers.registry import CallNext, Middleware

__all__ = [
    "CallNext",
    "Callbacks",
    "MeasureRuns",
    "Middleware",
    "RunEnd",
    "Watcher",
    "chain",
    "log_runs",
    "tell_end",
    "trace_runs",
]
