"""Owns the unique keys and idempotency keys of the memory store."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct

from windlass.core.jobs.job import Job, UniqueKey
from windlass.store.memory.job_index import MAX_FINISHED


class _Hold(Struct):
    job: UUID
    frees_on_claim: bool
    until: datetime | None
    """None: the job's state decides."""


class UniqueKeys:
    """The unique keys that are held."""

    def __init__(self) -> None:
        self._holds: dict[str, _Hold] = {}

    def holder(self, key: str, now: datetime) -> UUID | None:
        """Return the job that holds a key now."""
        hold = self._holds.get(key)
        if hold is None or (hold.until is not None and hold.until <= now):
            return None
        return hold.job

    def hold(self, unique: UniqueKey, job: UUID, now: datetime) -> None:
        """Give a free key to a job."""
        until = unique.until
        self._holds[unique.key] = _Hold(
            job=job,
            frees_on_claim=until == "claimed",
            until=now + until if isinstance(until, timedelta) else None,
        )

    def free_on_claim(self, job: Job) -> None:
        """Free the key of a claimed job, if it was held only while the job waited."""
        hold = self._holds.get(job.unique_key or "")
        if hold is not None and hold.frees_on_claim:
            self.free(job)

    def free(self, job: Job) -> None:
        """Free the key of a finished job, unless it is held for a time."""
        hold = self._holds.get(job.unique_key or "")
        if hold is not None and hold.job == job.id and hold.until is None:
            del self._holds[job.unique_key or ""]

    def prune(self, now: datetime) -> int:
        """Delete keys whose time is over; return how many."""
        spent = [key for key, hold in self._holds.items() if hold.until and hold.until <= now]
        for key in spent:
            del self._holds[key]
        return len(spent)


class DoneKeys:
    """The idempotency keys of completed jobs, by kind, each with the job that was the first."""

    def __init__(self, is_kept: Callable[[UUID], bool]) -> None:
        self._is_kept = is_kept
        self._done: dict[tuple[str, str], tuple[UUID, datetime]] = {}

    def by(self, kind: str, key: str) -> UUID | None:
        """Return the job that was completed with a key."""
        return self._done.get((kind, key), (None,))[0]

    def note(self, job: Job) -> None:
        """Record the key of a completed job, unless another job that is still kept has it."""
        if job.idempotency_key is None or job.finished_at is None:
            return
        place = (job.kind, job.idempotency_key)
        first = self._done.get(place)
        if first is not None and self._is_kept(first[0]):
            return
        self._done.pop(place, None)
        self._done[place] = (job.id, job.finished_at)
        if len(self._done) > MAX_FINISHED:
            del self._done[next(iter(self._done))]  # No more jobs than that are kept either.

    def prune(self, horizon: datetime) -> int:
        """Delete keys that were done before an instant; return how many."""
        spent = [place for place, (_, at) in self._done.items() if at < horizon]
        for place in spent:
            del self._done[place]
        return len(spent)
