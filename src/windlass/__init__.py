"""Windlass: background jobs on the database you already have, leased, fenced, never lost."""

from windlass.app import Draft, FanOut, Handle, Handler, Kind, Windlass
from windlass.context import Context, current_context
from windlass.core.breaker import Breaker
from windlass.core.error_classes import ErrorClass
from windlass.core.errors import (
    CalledFromEventLoop,
    ConfigError,
    FanOutTooLarge,
    Fenced,
    IllegalMove,
    JobCancelled,
    JobDead,
    MemoryExceeded,
    PayloadError,
    PayloadInvalid,
    PayloadTooLarge,
    Permanent,
    QueueFull,
    ResourceError,
    ResultError,
    ResultInvalid,
    ResultTimeout,
    RetryAfter,
    SchemaMismatch,
    StoreBusy,
    StoreError,
    StoreUnavailable,
    UnknownJob,
    UnknownKind,
    WindlassError,
)
from windlass.core.job import Job
from windlass.core.outcomes import Cancel, Snooze
from windlass.core.retry import Backoff, Retry
from windlass.core.secret import Secret
from windlass.core.states import State
from windlass.core.unique import Unique
from windlass.middleware import Callbacks, CallNext, MeasureRuns, Middleware
from windlass.observe.logs import configure_logging
from windlass.observe.meters import Meters
from windlass.release import __version__
from windlass.resources import Inject, Resources

__all__ = [
    "Backoff",
    "Breaker",
    "CallNext",
    "Callbacks",
    "CalledFromEventLoop",
    "Cancel",
    "ConfigError",
    "Context",
    "Draft",
    "ErrorClass",
    "FanOut",
    "FanOutTooLarge",
    "Fenced",
    "Handle",
    "Handler",
    "IllegalMove",
    "Inject",
    "Job",
    "JobCancelled",
    "JobDead",
    "Kind",
    "MeasureRuns",
    "MemoryExceeded",
    "Meters",
    "Middleware",
    "PayloadError",
    "PayloadInvalid",
    "PayloadTooLarge",
    "Permanent",
    "QueueFull",
    "ResourceError",
    "Resources",
    "ResultError",
    "ResultInvalid",
    "ResultTimeout",
    "Retry",
    "RetryAfter",
    "SchemaMismatch",
    "Secret",
    "Snooze",
    "State",
    "StoreBusy",
    "StoreError",
    "StoreUnavailable",
    "Unique",
    "UnknownJob",
    "UnknownKind",
    "Windlass",
    "WindlassError",
    "__version__",
    "configure_logging",
    "current_context",
]
