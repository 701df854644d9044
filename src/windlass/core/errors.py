"""Owns the error tree: what Windlass raises, and what handlers raise to steer it.

WindlassError
├── ConfigError            a setting, URL or registration that cannot work
├── ResourceError          a resource that handlers share could not be opened, or is not open
├── PayloadError           values that cannot be stored
│   ├── PayloadInvalid     ... because a field is wrong
│   ├── PayloadTooLarge    ... because there is too much of them
│   └── ResultInvalid      ... because what a handler returned has no JSON form
├── FanOutTooLarge         there are more jobs than a fan-out may make
├── FlowInvalid            a flow whose jobs could not all have their turn
├── UnknownKind            no handler is registered for a kind
├── UnknownJob             no job has this id
├── UnknownSchedule        no schedule has this name
├── IllegalMove            the job's state does not allow what was asked
├── CalledFromEventLoop    a blocking call where it would stop an event loop
├── StoreError             the store refused or failed
│   ├── StoreUnavailable   ... and may work later: nothing was lost, try again
│   │   └── StoreBusy      ... because somebody else holds what is to be written
│   ├── QueueFull          ... because a bounded queue is full
│   └── SchemaMismatch     ... because its schema and this release do not fit
├── MemoryExceeded         a job used more memory than its kind allows
├── Fenced                 the lease under which this was written is gone
├── ResultError            a result that cannot be had
│   ├── ResultTimeout      ... yet
│   ├── JobDead            ... because the job is dead
│   └── JobCancelled       ... because the job was cancelled
├── Permanent              raised by handlers: do not try again
│   ├── EventTimeout       an event that a job waited for did not come in time
│   └── StepError          a step that cannot be, where it is
│       └── StepsChanged   ... because the code has changed since an earlier attempt
└── RetryAfter             raised by handlers: try again at a time of my choosing
"""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from windlass.core.durations import Duration, When, human, when
from windlass.core.sizes import human_size


class WindlassError(Exception):
    """Anything that Windlass raises."""


class ConfigError(WindlassError):
    """A setting, URL or registration that cannot work as it stands."""


class ResourceError(WindlassError):
    """A `resource` that handlers share could not be opened, or is not open, for a `reason`."""

    def __init__(self, resource: str, reason: str) -> None:
        super().__init__(resource, reason)
        self.resource = resource
        self.reason = reason

    def __str__(self) -> str:
        return f"the resource {self.resource!r} {self.reason}"


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
        return f"{self.kind!r} cannot take this: {where}: {self.reason}"


class PayloadTooLarge(PayloadError):
    """A payload of more bytes than the limit allows."""

    def __init__(self, kind: str, size: int, limit: int) -> None:
        super().__init__(kind, size, limit)
        self.kind = kind
        self.size = size
        self.limit = limit

    def __str__(self) -> str:
        return (
            f"the payload of {self.kind!r} has {self.size:,} bytes, the limit is {self.limit:,}: "
            "store the object elsewhere and enqueue its id, or raise WINDLASS_MAX_PAYLOAD"
        )


class ResultInvalid(PayloadError):
    """What a handler returned, and cannot be stored."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(kind, reason)
        self.kind = kind
        self.reason = reason

    def __str__(self) -> str:
        return f"the result of {self.kind!r} cannot be stored: {self.reason}"


class FanOutTooLarge(WindlassError):
    """A fan-out would make more jobs than `at_most`; so many were `enqueued` before that."""

    def __init__(self, at_most: int, enqueued: int) -> None:
        super().__init__(at_most, enqueued)
        self.at_most = at_most
        self.enqueued = enqueued

    def __str__(self) -> str:
        before = f"{self.enqueued:,} were enqueued before that" if self.enqueued else "none was"
        return (
            f"there are more than {self.at_most:,} jobs, and {before}; if that many are meant, say "
            "so: at_most=..."
        )


class FlowInvalid(WindlassError):
    """A flow in which not every job could have its turn, or that is too large."""


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
    """An id that no job has, or has any more."""

    def __init__(self, job_id: UUID | str) -> None:
        super().__init__(job_id)
        self.job_id = job_id

    def __str__(self) -> str:
        return (
            f"no job has the id {self.job_id}; it may never have been enqueued in this store, "
            "or it finished and its retention is over"
        )


class UnknownSchedule(WindlassError):
    """A name that no schedule has in this store."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return (
            f"there is no schedule {self.name!r}; those of an app's code are there once a worker "
            "has run it, and `windlass schedules list` shows all"
        )


class IllegalMove(WindlassError):
    """A move that the job's state does not allow."""

    def __init__(self, job_id: UUID, state: str, move: str, remedy: str) -> None:
        super().__init__(job_id, state, move, remedy)
        self.job_id = job_id
        self.state = state
        self.move = move
        self.remedy = remedy

    def __str__(self) -> str:
        return f"job {self.job_id} is {self.state}, which allows no {self.move}: {self.remedy}"


class CalledFromEventLoop(WindlassError):
    """A blocking call was made in a running event loop, which it would stop."""

    def __init__(self, called: str, instead: str) -> None:
        super().__init__(called, instead)
        self.called = called
        self.instead = instead

    def __str__(self) -> str:
        return f"{self.called} would block the running event loop; write: {self.instead}"


class StoreError(WindlassError):
    """The store refused or failed."""


class StoreUnavailable(StoreError):
    """The store cannot be reached or written now. Nothing was lost; the call may be repeated."""


class StoreBusy(StoreUnavailable):
    """Somebody else holds what is to be written, for longer than one waits. Nothing was lost."""


class QueueFull(StoreError):
    """A bounded queue has no room for what was enqueued."""

    def __init__(self, size: int, message: str) -> None:
        super().__init__(size, message)
        self.size = size
        self.message = message

    def __str__(self) -> str:
        return f"the queue is full ({self.size:,} jobs are waiting): {self.message}"


class SchemaMismatch(StoreError):
    """The store's schema and this release of Windlass do not fit."""


class MemoryExceeded(WindlassError):
    """A job used more memory than it may, and was killed for that; it counts as a failure."""

    def __init__(self, used: int, limit: int) -> None:
        super().__init__(used, limit)
        self.used = used
        self.limit = limit

    def __str__(self) -> str:
        return (
            f"used {human_size(self.used)} of memory, and may use {human_size(self.limit)}: "
            "raise memory=, or do the work in smaller pieces"
        )


class Fenced(WindlassError):
    """The lease under which something was to be written is gone; nothing was written."""

    def __init__(self, job_id: UUID) -> None:
        super().__init__(job_id)
        self.job_id = job_id

    def __str__(self) -> str:
        return f"the lease on job {self.job_id} is gone: another worker has it, or it was settled"


class ResultError(WindlassError):
    """A result that cannot be had."""

    def __init__(self, job_id: UUID, reason: str) -> None:
        super().__init__(job_id, reason)
        self.job_id = job_id
        self.reason = reason

    def __str__(self) -> str:
        return f"job {self.job_id}: {self.reason}"


class ResultTimeout(ResultError, TimeoutError):
    """The job did not finish within the time given. It goes on."""


class JobDead(ResultError):
    """The job failed for good. `error` tells what its last attempt raised."""

    def __init__(self, job_id: UUID, reason: str, error: str | None) -> None:
        super().__init__(job_id, reason)
        self.args = (job_id, reason, error)
        self.error = error

    def __str__(self) -> str:
        return f"job {self.job_id} is dead: {self.reason}" + (
            f": {self.error}" if self.error else ""
        )


class JobCancelled(ResultError):
    """The job was cancelled before it could finish."""


class Permanent(WindlassError):
    """Raise this (or a subclass) in a handler when trying again cannot help: the job dies."""


class StepError(Permanent):
    """A step that cannot be as it is called: its name comes twice, or it is in another step."""


class StepsChanged(StepError):
    """The code no longer fits the steps that an earlier attempt of the job has recorded.

    The step `expected` was recorded next, and another one `came`, or None: the handler's end.
    """

    def __init__(self, expected: str, came: str | None) -> None:
        super().__init__(expected, came)
        self.expected = expected
        self.came = came

    def __str__(self) -> str:
        came = "the handler ended" if self.came is None else f"{self.came!r} came"
        return (
            f"the steps have changed since an earlier attempt: {self.expected!r} was recorded "
            f"next, and {came}. A job goes on with the steps that it began with: keep their names "
            "and their order, and give changed code another kind, or the step another place, after "
            "those that are recorded"
        )


class EventTimeout(Permanent):
    """An event that a job waited for did not come in time; catch it to go on without."""

    def __init__(self, event: str) -> None:
        super().__init__(event)
        self.event = event

    def __str__(self) -> str:
        return f"the event {self.event!r} did not come in time"


class RetryAfter(WindlassError):
    """Raise this in a handler to be tried again when you say so; it counts as a failure."""

    def __init__(self, due: Duration | datetime, reason: str = "") -> None:
        super().__init__(due, reason)
        self.due: When = when(due)
        self.reason = reason

    def __str__(self) -> str:
        asked = (
            f"in {human(self.due)}"
            if isinstance(self.due, timedelta)
            else f"at {self.due.isoformat()}"
        )
        return f"asked to be retried {asked}" + (f": {self.reason}" if self.reason else "")
