"""Owns the unique keys of the memory store: who holds which, and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from windlass.core.job import Job, Unique


@dataclass
class _Hold:
    """Who holds a key; `until` is None while the job's state decides."""

    job: UUID
    frees_on_claim: bool
    until: datetime | None


class Keys:
    """The unique keys that are held."""

    def __init__(self) -> None:
        self._holds: dict[str, _Hold] = {}

    def holder(self, key: str, now: datetime) -> UUID | None:
        """Return the job that holds a key now."""
        hold = self._holds.get(key)
        if hold is None or (hold.until is not None and hold.until <= now):
            return None
        return hold.job

    def hold(self, unique: Unique, job: UUID, now: datetime) -> None:
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
        """Forget keys whose time is over; return how many."""
        spent = [key for key, hold in self._holds.items() if hold.until and hold.until <= now]
        for key in spent:
            del self._holds[key]
        return len(spent)
