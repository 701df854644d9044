"""Owns errors of `handle.result()`."""

from __future__ import annotations

from uuid import UUID

from windlass.core.errors.base import WindlassError


class ResultError(WindlassError):
    """A result that is not available.

    Remedy:
        See the subclass: the job is not finished, dead or cancelled.
    """

    def __init__(self, job_id: UUID, reason: str) -> None:
        super().__init__(job_id, reason)
        self.job_id = job_id
        self.reason = reason

    def __str__(self) -> str:
        return f"job {self.job_id}: {self.reason}"


class ResultTimeout(ResultError, TimeoutError):
    """The job did not finish within the time given. It continues.

    Remedy:
        Wait longer, or ask for the state later; `windlass why ID` says why the job has not
        run yet.
    """


class JobDead(ResultError):
    """The job failed for good. `error` describes the exception of its last attempt.

    Remedy:
        Read `error`, or `windlass jobs show ID`; correct the cause, then `windlass dead
        redrive ID`.
    """

    def __init__(self, job_id: UUID, reason: str, error: str | None) -> None:
        super().__init__(job_id, reason)
        self.args = (job_id, reason, error)
        self.error = error

    def __str__(self) -> str:
        said = f"job {self.job_id} is dead: {self.reason}"
        message = (self.error or "").partition(": ")[2]
        if not self.error or (message and f": {self.reason}".endswith(f": {message}")):
            return said  # The reason ends with it.
        return f"{said}: {self.error}"


class JobCancelled(ResultError):
    """The job was cancelled before it could finish.

    Remedy:
        Enqueue a new job if the work is still wanted.
    """
