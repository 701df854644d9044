"""Owns the results of a job's parents in a flow, as its handler gets them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

from windlass.core.errors import JobCancelled, JobDead, ResultError
from windlass.core.jobs.ids import member_id
from windlass.core.jobs.job import Job
from windlass.core.jobs.states import State
from windlass.core.payloads.codec import decode_json
from windlass.core.payloads.secret import Sealing
from windlass.core.workflows.flow_graph import AFTER, numbers_in
from windlass.handlers.registry import Registry
from windlass.store import Store

_MAX_JOBS_PER_READ = 1_000


class StoredParentResults:
    """Finds the results of a job's parents, by a store and a loop, and decodes them as declared.

    The store is opened on first use: a handler that never asks needs none.
    """

    def __init__(
        self, store: Callable[[], Store], registry: Registry, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._store = store
        self._registry = registry
        self._loop = loop

    async def of(self, job: Job) -> list[Any]:
        """Return the results of a job's parents; for a failed parent, its error.

        Raises: ResultError: a parent is not kept any more, or its result does not fit its declared
        type.
        """
        flow = job.flow
        if flow is None or AFTER not in job.headers:
            return []
        parents = [member_id(flow, number) for number in numbers_in(job.headers[AFTER])]
        results: dict[UUID, Any] = {}
        for start in range(0, len(parents), _MAX_JOBS_PER_READ):
            ids = parents[start : start + _MAX_JOBS_PER_READ]
            jobs = await self._store().get_many(ids)
            results |= {job_id: self._value(job_id, jobs.get(job_id)) for job_id in ids}
        return [results[parent] for parent in parents]

    def of_blocking(self, job: Job) -> list[Any]:
        """Do the same from a thread that runs no event loop."""
        return asyncio.run_coroutine_threadsafe(self.of(job), self._loop).result()

    def _value(self, job_id: UUID, job: Job | None) -> Any:
        if job is None:
            reason = "its result is no longer kept; WINDLASS_RETENTION sets how long results are"
            raise ResultError(job_id, reason)
        if job.state is State.DEAD:
            error = None if job.error is None else str(job.error)
            return JobDead(job_id, job.reason or "it failed", error)
        if job.state is not State.COMPLETED:
            return JobCancelled(job_id, f"{job.state}: {job.reason}")
        return None if job.result is None else self._decoded(job, job.result)

    def _decoded(self, job: Job, result: bytes) -> Any:
        if job.kind not in self._registry:
            return decode_json(result)
        target = self._registry[job.kind].target
        cipher = target.result_cipher
        sealing = None if cipher is None else Sealing(cipher, "result", job.kind)
        try:
            return decode_json(result, target.result, sealing=sealing)
        except (ValueError, NotImplementedError) as error:
            reason = f"its result does not match the return type of its handler: {error}"
            raise ResultError(job.id, reason) from error
