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

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from windlass.core.values.durations import Duration, When, human, retry_after
from windlass.core.values.sizes import human_size


class WindlassError(Exception):
    """Anything that Windlass raises."""


class ConfigError(WindlassError):
    """A setting, URL or registration that cannot work as it stands."""


class ImportFailed(ConfigError):
    """A module of the app raised while it was imported; `__cause__` is that exception."""


class ProviderError(WindlassError):
    """The value of a `provider` could not be opened, or is not open, for a `reason`."""

    def __init__(self, provider: str, reason: str) -> None:
        super().__init__(provider, reason)
        self.provider = provider
        self.reason = reason

    def __str__(self) -> str:
        return f"the provider {self.provider!r} {self.reason}"


class PayloadError(WindlassError):
    """Arguments, or a result, that cannot be stored."""


class PayloadInvalid(PayloadError):
    """A payload whose `field` does not fit its handler, for a `reason`."""

    def __init__(self, kind: str, field: str, reason: str) -> None:
        super().__init__(kind, field, reason)
        self.kind = kind
        self.field = field
        self.reason = reason

    def __str__(self) -> str:
        where = f"field {self.field!r}" if self.field else "the payload"
        return f"invalid payload for {self.kind!r}: {where}: {self.reason}"


class PayloadTooLarge(PayloadError):
    """A payload of more bytes than the limit allows."""

    def __init__(self, kind: str, size: int, limit: int) -> None:
        super().__init__(kind, size, limit)
        self.kind = kind
        self.size = size
        self.limit = limit

    def __str__(self) -> str:
        return (
            f"the payload of {self.kind!r} has {self.size:,} bytes, the limit is {self.limit:,}; "
            "store the object elsewhere and enqueue its id, or raise WINDLASS_MAX_PAYLOAD"
        )


class ResultInvalid(PayloadError):
    """A result of a handler that cannot be stored."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(kind, reason)
        self.kind = kind
        self.reason = reason

    def __str__(self) -> str:
        return f"the result of {self.kind!r} cannot be stored: {self.reason}"


class FanOutTooLarge(WindlassError):
    """A fan-out would make more jobs than `at_most`; `enqueued` jobs were added before that."""

    def __init__(self, at_most: int, enqueued: int) -> None:
        super().__init__(at_most, enqueued)
        self.at_most = at_most
        self.enqueued = enqueued

    def __str__(self) -> str:
        before = f"{self.enqueued:,} were already enqueued" if self.enqueued else "none was"
        return (
            f"there are more than {self.at_most:,} jobs, and {before}; to enqueue more, raise "
            "at_most="
        )


class FlowInvalid(WindlassError):
    """A flow in which some job could never run, or that is too large."""


class UnknownKind(WindlassError):
    """A kind for which no handler is registered in this app."""

    def __init__(self, kind: str, known: tuple[str, ...] = ()) -> None:
        super().__init__(kind, known)
        self.kind = kind
        self.known = known

    def __str__(self) -> str:
        near = f" Did you mean {' or '.join(self.known)}?" if self.known else ""
        return (
            f"UnknownKind({self.kind!r}): no handler is registered; is its module imported?{near}"
        )


class UnknownJob(WindlassError):
    """An id that no job has, or no longer has."""

    def __init__(self, job_id: UUID | str) -> None:
        super().__init__(job_id)
        self.job_id = job_id

    def __str__(self) -> str:
        named = "the id" if isinstance(self.job_id, UUID) else "an id that starts with"
        return (
            f"no job has {named} {self.job_id}; it may be in another store, or it finished and "
            "its retention has passed"
        )


class AmbiguousId(WindlassError):
    """The beginning of an id that several jobs have."""

    LISTED = 5
    """How many of the jobs the message names."""

    def __init__(self, prefix: str, candidates: Sequence[str]) -> None:
        super().__init__(prefix, candidates)
        self.prefix = prefix
        self.candidates = candidates
        """Some of the jobs, each by its id, kind and state."""

    def __str__(self) -> str:
        more = " and others" if len(self.candidates) > self.LISTED else ""
        listed = ", ".join(self.candidates[: self.LISTED]) + more
        return f"the prefix {self.prefix} matches several ids: {listed}; add more digits"


class UnknownSchedule(WindlassError):
    """A name that no schedule has in this store."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return (
            f"there is no schedule {self.name!r}; `windlass schedules list` shows all, and those "
            "declared in an app's code appear once a worker has run"
        )


class InvalidTransition(WindlassError):
    """A move that the job's state does not allow."""

    def __init__(self, job_id: UUID, state: str, move: str, remedy: str) -> None:
        super().__init__(job_id, state, move, remedy)
        self.job_id = job_id
        self.state = state
        self.move = move
        self.remedy = remedy

    def __str__(self) -> str:
        return f"cannot {self.move}: job {self.job_id} is {self.state}; {self.remedy}"


class CalledFromEventLoop(WindlassError):
    """A blocking call was made in a running event loop, which it would stop."""

    def __init__(self, called: str, instead: str) -> None:
        super().__init__(called, instead)
        self.called = called
        self.instead = instead

    def __str__(self) -> str:
        return f"{self.called} would block the running event loop; write {self.instead}"


class StoreError(WindlassError):
    """The store refused or failed."""


class StoreUnavailable(StoreError):
    """The store cannot be reached or written now; repeat the call. Nothing was written."""


class StoreBusy(StoreUnavailable):
    """Another transaction holds the rows for longer than the timeout. Nothing was lost."""


class StoreRefused(StoreUnavailable):
    """The store refuses the connection, or is not where the URL says; waiting does not help."""


class WriteUncertain(StoreUnavailable):
    """The store did not answer: the write may have happened, may happen yet, or not at all."""


class QueueFull(StoreError):
    """A bounded queue has no room for the enqueued jobs; `size` is None if memory bounds it."""

    def __init__(self, size: int | None, message: str) -> None:
        super().__init__(size, message)
        self.size = size
        self.message = message

    def __str__(self) -> str:
        waiting = "" if self.size is None else f" ({self.size:,} jobs are waiting)"
        return f"the queue is full{waiting}: {self.message}"


class SchemaMismatch(StoreError):
    """The store's schema and this release of Windlass do not fit."""


class MemoryExceeded(WindlassError):
    """A job used more memory than allowed and was killed; this counts as a failure."""

    def __init__(self, used: int, limit: int) -> None:
        super().__init__(used, limit)
        self.used = used
        self.limit = limit

    def __str__(self) -> str:
        return (
            f"used {human_size(self.used)} of memory, the limit is {human_size(self.limit)}; "
            "raise memory=, or do the work in smaller pieces"
        )


class JobCrashed(WindlassError):
    """The child process in which a job ran alone died, for a `reason`; this counts as a crash."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class LeaseLost(WindlassError):
    """The lease was lost before the write; nothing was written."""

    def __init__(self, job_id: UUID) -> None:
        super().__init__(job_id)
        self.job_id = job_id

    def __str__(self) -> str:
        return (
            f"the lease on job {self.job_id} is lost: another worker has the job, or it was settled"
        )


class ResultError(WindlassError):
    """A result that is not available."""

    def __init__(self, job_id: UUID, reason: str) -> None:
        super().__init__(job_id, reason)
        self.job_id = job_id
        self.reason = reason

    def __str__(self) -> str:
        return f"job {self.job_id}: {self.reason}"


class ResultTimeout(ResultError, TimeoutError):
    """The job did not finish within the time given. It continues."""


class JobDead(ResultError):
    """The job failed for good. `error` describes the exception of its last attempt."""

    def __init__(self, job_id: UUID, reason: str, error: str | None) -> None:
        super().__init__(job_id, reason)
        self.args = (job_id, reason, error)
        self.error = error

    def __str__(self) -> str:
        said = f"job {self.job_id} is dead: {self.reason}"
        message = (self.error or "").partition(": ")[2]
        if not self.error or (message and message in self.reason):
            return said  # The reason contains it.
        return f"{said}: {self.error}"


class JobCancelled(ResultError):
    """The job was cancelled before it could finish."""


class PermanentError(WindlassError):
    """Raise this (or a subclass) in a handler when trying again cannot help: the job dies."""


class StepError(PermanentError):
    """A step that is not allowed where it is called: its name is used twice, or it is nested."""


class StepsChanged(StepError):
    """The code no longer matches the steps that an earlier attempt of the job recorded.

    The step `expected` was recorded next, and another one `came`, or None: the handler's end.
    """

    def __init__(self, expected: str, came: str | None) -> None:
        super().__init__(expected, came)
        self.expected = expected
        self.came = came

    def __str__(self) -> str:
        came = "the handler ended" if self.came is None else f"{self.came!r} came"
        return (
            f"the steps changed since an earlier attempt: {self.expected!r} was recorded next, "
            f"but {came}; keep the names and the order of recorded steps, add new steps after "
            "them, or give the changed code another kind"
        )


class EventTimeout(PermanentError):
    """An event that a job waited for did not come in time; catch it to continue without."""

    def __init__(self, event: str) -> None:
        super().__init__(event)
        self.event = event

    def __str__(self) -> str:
        return f"the event {self.event!r} did not arrive in time"


class RetryAfter(WindlassError):
    """Raise this in a handler to be tried again when you say so; it counts as a failure.

    The time is a duration, an aware datetime, or what HTTP's `Retry-After` header says: seconds
    ("120") or a date.

    Example:
        `raise RetryAfter(response.headers["Retry-After"])`
    """

    def __init__(self, due: Duration | datetime, reason: str = "") -> None:
        super().__init__(due, reason)
        self.due: When = retry_after(due)
        self.reason = reason

    def __str__(self) -> str:
        asked = (
            f"in {human(self.due)}"
            if isinstance(self.due, timedelta)
            else f"at {self.due.isoformat()}"
        )
        return f"retry requested {asked}" + (f": {self.reason}" if self.reason else "")
