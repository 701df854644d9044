"""Windlass: background jobs in the database that you already have."""

# ruff: noqa: E402
from windlass.hangup import ignore_until_ready as _ignore_until_ready

_ignore_until_ready()  # First: the other imports take so long that a SIGHUP may come meanwhile.

import typing as _typing

from windlass.lazy_names import lazy_names as _lazy_names
from windlass.version import __version__

if _typing.TYPE_CHECKING:
    from windlass.app.app import Windlass
    from windlass.app.enqueueing.fan_out import FanOut
    from windlass.app.enqueueing.uncertain import EnqueueUncertain
    from windlass.app.handle import Handle
    from windlass.app.producer import Draft, Handler
    from windlass.app.registration.kind import Kind
    from windlass.app.workflows.flow import After, Flow, Node
    from windlass.app.workflows.pipeline import PIPELINE, Pipeline, Stage
    from windlass.core.errors import (
        AmbiguousId,
        CalledFromEventLoop,
        ConfigError,
        EventTimeout,
        FanOutTooLarge,
        FlowInvalid,
        ImportFailed,
        InvalidTransition,
        JobCancelled,
        JobCrashed,
        JobDead,
        LeaseLost,
        MemoryExceeded,
        PayloadError,
        PayloadInvalid,
        PayloadTooLarge,
        PermanentError,
        ProviderError,
        QueueFull,
        ResultError,
        ResultInvalid,
        ResultTimeout,
        RetryAfter,
        SchemaMismatch,
        StepError,
        StepsChanged,
        StoreBusy,
        StoreError,
        StoreForbidden,
        StoreRefused,
        StoreUnavailable,
        UnknownJob,
        UnknownKind,
        UnknownSchedule,
        WindlassError,
        WriteUncertain,
    )
    from windlass.core.failures.error_classes import ErrorClass
    from windlass.core.jobs.job import Job
    from windlass.core.jobs.outcomes import Cancel, Snooze
    from windlass.core.jobs.retry import Backoff, Retry
    from windlass.core.jobs.states import State
    from windlass.core.jobs.streams import ChunkInvalid, StreamFull, StreamRestart
    from windlass.core.jobs.unique import Unique
    from windlass.core.payloads.protobuf.forms import Protobuf
    from windlass.core.payloads.secret import Secret
    from windlass.core.policies.breaker import Breaker
    from windlass.core.search.errors import SearchError
    from windlass.core.search.scan import Budget
    from windlass.core.stats.stats import Stats
    from windlass.core.workflows.flow_result import FlowResult
    from windlass.handlers.any_context import AnyContext
    from windlass.handlers.context import Context, current_context
    from windlass.handlers.middleware import Callbacks, CallNext, MeasureRuns, Middleware
    from windlass.handlers.provided import Inject, Provided
    from windlass.handlers.steps import Step, current_step
    from windlass.handlers.sync_context import SyncContext
    from windlass.observability.logs import configure_logging
    from windlass.observability.meters import Meters
else:
    __getattr__ = _lazy_names(
        __name__,
        {
            "windlass.app.app": ("Windlass",),
            "windlass.app.enqueueing.fan_out": ("FanOut",),
            "windlass.app.enqueueing.uncertain": ("EnqueueUncertain",),
            "windlass.app.handle": ("Handle",),
            "windlass.app.producer": ("Draft", "Handler"),
            "windlass.app.registration.kind": ("Kind",),
            "windlass.app.workflows.flow": ("After", "Flow", "Node"),
            "windlass.app.workflows.pipeline": ("PIPELINE", "Pipeline", "Stage"),
            "windlass.core.errors": (
                "AmbiguousId",
                "CalledFromEventLoop",
                "ConfigError",
                "EventTimeout",
                "FanOutTooLarge",
                "FlowInvalid",
                "ImportFailed",
                "InvalidTransition",
                "JobCancelled",
                "JobCrashed",
                "JobDead",
                "LeaseLost",
                "MemoryExceeded",
                "PayloadError",
                "PayloadInvalid",
                "PayloadTooLarge",
                "PermanentError",
                "ProviderError",
                "QueueFull",
                "ResultError",
                "ResultInvalid",
                "ResultTimeout",
                "RetryAfter",
                "SchemaMismatch",
                "StepError",
                "StepsChanged",
                "StoreBusy",
                "StoreError",
                "StoreForbidden",
                "StoreRefused",
                "StoreUnavailable",
                "UnknownJob",
                "UnknownKind",
                "UnknownSchedule",
                "WindlassError",
                "WriteUncertain",
            ),
            "windlass.core.failures.error_classes": ("ErrorClass",),
            "windlass.core.jobs.job": ("Job",),
            "windlass.core.jobs.outcomes": ("Cancel", "Snooze"),
            "windlass.core.jobs.retry": ("Backoff", "Retry"),
            "windlass.core.jobs.states": ("State",),
            "windlass.core.jobs.streams": ("ChunkInvalid", "StreamFull", "StreamRestart"),
            "windlass.core.jobs.unique": ("Unique",),
            "windlass.core.payloads.protobuf.forms": ("Protobuf",),
            "windlass.core.payloads.secret": ("Secret",),
            "windlass.core.policies.breaker": ("Breaker",),
            "windlass.core.search.errors": ("SearchError",),
            "windlass.core.search.scan": ("Budget",),
            "windlass.core.stats.stats": ("Stats",),
            "windlass.core.workflows.flow_result": ("FlowResult",),
            "windlass.handlers.any_context": ("AnyContext",),
            "windlass.handlers.context": ("Context", "current_context"),
            "windlass.handlers.middleware": ("CallNext", "Callbacks", "MeasureRuns", "Middleware"),
            "windlass.handlers.provided": ("Inject", "Provided"),
            "windlass.handlers.steps": ("Step", "current_step"),
            "windlass.handlers.sync_context": ("SyncContext",),
            "windlass.observability.logs": ("configure_logging",),
            "windlass.observability.meters": ("Meters",),
        },
    )

__all__ = [
    "PIPELINE",
    "After",
    "AmbiguousId",
    "AnyContext",
    "Backoff",
    "Breaker",
    "Budget",
    "CallNext",
    "Callbacks",
    "CalledFromEventLoop",
    "Cancel",
    "ChunkInvalid",
    "ConfigError",
    "Context",
    "Draft",
    "EnqueueUncertain",
    "ErrorClass",
    "EventTimeout",
    "FanOut",
    "FanOutTooLarge",
    "Flow",
    "FlowInvalid",
    "FlowResult",
    "Handle",
    "Handler",
    "ImportFailed",
    "Inject",
    "InvalidTransition",
    "Job",
    "JobCancelled",
    "JobCrashed",
    "JobDead",
    "Kind",
    "LeaseLost",
    "MeasureRuns",
    "MemoryExceeded",
    "Meters",
    "Middleware",
    "Node",
    "PayloadError",
    "PayloadInvalid",
    "PayloadTooLarge",
    "PermanentError",
    "Pipeline",
    "Protobuf",
    "Provided",
    "ProviderError",
    "QueueFull",
    "ResultError",
    "ResultInvalid",
    "ResultTimeout",
    "Retry",
    "RetryAfter",
    "SchemaMismatch",
    "SearchError",
    "Secret",
    "Snooze",
    "Stage",
    "State",
    "Stats",
    "Step",
    "StepError",
    "StepsChanged",
    "StoreBusy",
    "StoreError",
    "StoreForbidden",
    "StoreRefused",
    "StoreUnavailable",
    "StreamFull",
    "StreamRestart",
    "SyncContext",
    "Unique",
    "UnknownJob",
    "UnknownKind",
    "UnknownSchedule",
    "Windlass",
    "WindlassError",
    "WriteUncertain",
    "__version__",
    "configure_logging",
    "current_context",
    "current_step",
]


def __dir__() -> list[str]:
    return sorted(__all__)
