"""Owns the streams of jobs in the memory store."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from windlass.core.jobs.job import Job
from windlass.core.jobs.states import FINISHED
from windlass.core.jobs.streams import Appended, ChunkGroup, Position, StoredGroup


class _Group(NamedTuple):
    stored: StoredGroup
    steps: int
    total: int
    """The bytes of the stream up to the end of this group."""


class Streams:
    """Groups of chunks by job, each job's in order."""

    def __init__(self) -> None:
        self._groups: dict[UUID, list[_Group]] = {}
        self._added_at: dict[UUID, datetime] = {}

    def append(self, new: ChunkGroup, now: datetime) -> Appended:
        """Add a group unless it is there, after those that its attempt keeps."""
        groups = [
            group
            for group in self._groups.get(new.id, ())
            if group.stored.attempt >= new.attempt or group.steps < new.resumed
        ]
        kept = [group.stored.last for group in groups if group.stored.attempt < new.attempt]
        last = max(kept, default=0) + new.offset + len(new.chunks)
        if (new.attempt, last) not in {group.stored[:2] for group in groups}:
            total = (groups[-1].total if groups else 0) + new.size
            groups.append(_Group(StoredGroup(new.attempt, last, new.chunks), new.steps, total))
        self._groups[new.id] = groups
        self._added_at[new.id] = now
        return Appended(groups[-1].stored.last, groups[-1].total)

    def after(self, job: UUID, position: Position, limit: int) -> list[StoredGroup]:
        """Return the groups that a reader at a position has not seen, or not as a whole."""
        groups = (group.stored for group in self._groups.get(job, ()))
        return [group for group in groups if group[:2] > position][: max(limit, 1)]

    def forget(self, job: UUID) -> None:
        self._groups.pop(job, None)
        self._added_at.pop(job, None)

    def prune(self, job_of: Callable[[UUID], Job | None], horizon: datetime, limit: int) -> int:
        """Delete the streams of jobs that have ended for long enough, or are gone."""
        ended = [
            job_id
            for job_id, at in self._added_at.items()
            if at < horizon and _is_over(job_of(job_id), horizon)
        ][:limit]
        for job_id in ended:
            self.forget(job_id)
        return len(ended)


def _is_over(job: Job | None, horizon: datetime) -> bool:
    if job is None:
        return True
    return job.state in FINISHED and job.finished_at is not None and job.finished_at < horizon
