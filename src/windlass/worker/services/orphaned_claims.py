"""Owns the search for jobs that this worker holds in the store but does not run."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from windlass.core.jobs.job import Job
from windlass.core.jobs.outcomes import Released
from windlass.process.exits.exit_reasons import transitions_after_crash
from windlass.process.service import Service
from windlass.store import StoreQueries
from windlass.worker.engine.engine import Engine
from windlass.worker.state import WorkerState


class OrphanedClaims(Service):
    """Gives back jobs that this worker holds in the store, and does not know.

    The answer to a claim can get lost after the claim was made. Such a job would be held for as
    long as the worker lives. A job that is found twice in a row is not on its way any more. As long
    as the store has jobs of such a claim, no later job of their ordered keys starts.
    """

    name = "orphaned_claims"

    def __init__(
        self,
        store: StoreQueries,
        *,
        interval: timedelta,
        state: WorkerState,
        engine: Engine,
    ) -> None:
        super().__init__()
        self._store = store
        self._interval = interval.total_seconds()
        self._state = state
        self._engine = engine
        self._seen: set[tuple[UUID, int | None]] = set()

    async def tick(self) -> float:
        doubtful = self._engine.gates.doubtful
        held = await self._store.held(self._state.id)
        if doubtful:
            self._engine.gates.resolve(doubtful - {job.token for job in held})
        unknown = {(job.id, job.token): job for job in held if not self._engine.is_known(job)}
        for each in self._seen & unknown.keys():
            self.give_back(unknown[each])
        self._seen = set(unknown)
        return self._interval

    def give_back(self, job: Job) -> None:
        """Release a job that does not run here."""
        (move,) = transitions_after_crash(
            [job], lambda _: Released(reason="claimed but never started")
        )
        self._engine.completer.add(job, move)
