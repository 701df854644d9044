"""Owns errors of runs: raised by handlers to steer Windlass, or by Windlass in place of them."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from windlass.core.errors.base import WindlassError
from windlass.core.values.durations import Duration, When, human, retry_after
from windlass.core.values.sizes import human_size


class MemoryExceeded(WindlassError):
    """A job used more memory than allowed and was killed; this counts as a failure.

    Remedy:
        Raise `memory=` of the kind, or do the work in smaller pieces.
    """

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
    """The child process in which a job ran alone died, for a `reason`; this counts as a crash.

    Remedy:
        Look for the cause in the reason: a signal, a library that calls `exit`, or the
        system out of memory. `windlass jobs run ID --here` repeats the run.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class LeaseLost(WindlassError):
    """The lease was lost before the write; nothing was written.

    Remedy:
        Nothing is to be done for the job: another worker has it. If it happens often, follow
        the runbook of the alert WindlassFencedWrites.
    """

    def __init__(self, job_id: UUID) -> None:
        super().__init__(job_id)
        self.job_id = job_id

    def __str__(self) -> str:
        return (
            f"the lease on job {self.job_id} is lost: another worker has the job, or it was settled"
        )


class PermanentError(WindlassError):
    """Raise this (or a subclass) in a handler when trying again cannot help: the job dies.

    Remedy:
        Correct the payload or the code, then `windlass dead redrive ID`.
    """


class StepError(PermanentError):
    """A step that is not allowed where it is called: its name is used twice, or it is nested.

    Remedy:
        Give every step a name of its own, and call no step inside another.
    """


class StepsChanged(StepError):
    """The code no longer matches the steps that an earlier attempt of the job recorded.

    The step `expected` was recorded next, and another one `came`, or None: the handler's end.

    Remedy:
        Keep the names and the order of recorded steps, add new steps after them, or give
        the changed code another kind.
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
    """An event that a job waited for did not come in time; catch it to continue without.

    Remedy:
        Catch it to continue without the event, or wait longer with `timeout=`; `windlass
        events show NAME` says whether it was sent.
    """

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

    Remedy:
        Nothing is to be done: the job is retried at that time.
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
