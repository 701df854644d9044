"""Owns the writing of reported progress, at intervals and in groups."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from windlass.core.jobs.job import Job, Progress
from windlass.process.service import Service
from windlass.store import Store

if TYPE_CHECKING:
    from windlass.worker.engine.engine import Engine

_REPORT_SECONDS = 0.5


class ProgressReporter(Service):
    """Writes the latest progress of each job, at most twice a second."""

    name = "progress_reporter"

    def __init__(self, store: Store, engine: Engine) -> None:
        super().__init__()
        self._store = store
        self._engine = engine
        self.latest: dict[UUID, tuple[Job, Progress]] = {}
        """The progress that is not in the store yet."""

    def report(self, job: Job, progress: Progress) -> None:
        """Take a report from a handler, in any thread."""
        self.latest[job.id] = (job, progress)

    def forget(self, job: Job) -> None:
        """Drop the report of a run that has ended: it would come too late."""
        self.latest.pop(job.id, None)

    async def tick(self) -> float:
        while self.latest:
            job_id, (job, progress) = self.latest.popitem()
            if job.token is not None and not await self._store.progress(
                job_id, job.token, progress
            ):
                self._engine.stop_fenced(job)
        return _REPORT_SECONDS
