"""What wraps a run: the chain, and the middleware that ships with Windlass."""

from windlass.middleware.callbacks import Callbacks
from windlass.middleware.chain import chain
from windlass.middleware.logging import log_runs
from windlass.middleware.measuring import MeasureRuns
from windlass.middleware.tracing import trace_runs
from windlass.registry import CallNext, Middleware

__all__ = ["CallNext", "Callbacks", "MeasureRuns", "Middleware", "chain", "log_runs", "trace_runs"]
