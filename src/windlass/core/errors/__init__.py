"""Owns the error tree: what Windlass raises, and what handlers raise to steer it.

WindlassError
├── ConfigError            a setting, URL or registration that cannot work
│   └── ImportFailed       ... because a module of the app raised while it was imported
├── ProviderError          a value that handlers share could not be opened, or is not open
├── PayloadError           values that cannot be stored
│   ├── PayloadInvalid     ... because a field is wrong
│   ├── PayloadTooLarge    ... because they are too large
│   └── ResultInvalid      ... because the result of a handler has no JSON form
├── FanOutTooLarge         there are more jobs than a fan-out may make
├── FlowInvalid            a flow in which some job could never run
├── UnknownKind            no handler is registered for a kind
├── UnknownJob             no job has this id
├── AmbiguousId            several jobs have ids that begin like this
├── UnknownSchedule        no schedule has this name
├── InvalidTransition      the job's state does not allow what was asked
├── CalledFromEventLoop    a blocking call where it would stop an event loop
├── StoreError             the store refused or failed
│   ├── StoreUnavailable   ... and may work later: nothing was written, try again
│   │   ├── StoreBusy      ... because another transaction holds the rows
│   │   ├── StoreRefused   ... once the URL, or the server it names, is corrected
│   │   └── WriteUncertain  ... and it may have been written, or may be yet; can be repeated
│   ├── QueueFull          ... because a bounded queue is full
│   ├── StoreForbidden     ... because its user lacks a right
│   └── SchemaMismatch     ... because its schema and this release do not fit
├── MemoryExceeded         a job used more memory than its kind allows
├── JobCrashed             the process in which a job ran alone has died
├── LeaseLost              the lease was lost before the write
├── ResultError            a result that is not available
│   ├── ResultTimeout      ... yet
│   ├── JobDead            ... because the job is dead
│   └── JobCancelled       ... because the job was cancelled
├── PermanentError         raised by handlers: do not try again
│   ├── EventTimeout       an event that a job waited for did not come in time
│   └── StepError          a step that is not allowed where it is called
│       └── StepsChanged   ... because the code has changed since an earlier attempt
└── RetryAfter             raised by handlers: try again at a given time
"""

from __future__ import annotations

from windlass.core.errors.base import (
    CalledFromEventLoop,
    ConfigError,
    ImportFailed,
    ProviderError,
    WindlassError,
)
from windlass.core.errors.lookups import (
    AmbiguousId,
    InvalidTransition,
    UnknownJob,
    UnknownKind,
    UnknownSchedule,
)
from windlass.core.errors.payloads import (
    FanOutTooLarge,
    FlowInvalid,
    PayloadError,
    PayloadInvalid,
    PayloadTooLarge,
    ResultInvalid,
)
from windlass.core.errors.results import (
    JobCancelled,
    JobDead,
    ResultError,
    ResultTimeout,
)
from windlass.core.errors.runs import (
    EventTimeout,
    JobCrashed,
    LeaseLost,
    MemoryExceeded,
    PermanentError,
    RetryAfter,
    StepError,
    StepsChanged,
)
from windlass.core.errors.store import (
    QueueFull,
    SchemaMismatch,
    StoreBusy,
    StoreError,
    StoreForbidden,
    StoreRefused,
    StoreUnavailable,
    WriteUncertain,
)

__all__ = [
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
]
