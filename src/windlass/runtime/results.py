"""Owns the results of parents, as the handler of a job in a flow gets them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

from windlass.core.errors import JobCancelled, JobDead, ResultError
from windlass.core.flow import AFTER, numbers_in
from windlass.core.job import Job, member_id
from windlass.core.payload import decode_json
from windlass.core.secret import Sealing
from windlass.core.states import State
from windlass.registry import Registry
from windlass.store import Store

_AT_ONCE = 1_000


class Results:
    """Finds the results of a job's parents, by a store and a loop, and reads them as declared.

    The store is made when it is first asked: a handler that never asks needs none.
    """

    def __init__(
        self, store: Callable[[], Store], registry: Registry, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._store = store
        self._registry = registry
        self._loop = loop

    async def of(self, job: Job) -> list[Any]:
        """Return the results of a job's parents; for one that failed, the error that tells it.

        Raises:
            ResultError: a parent is not kept any more, or its result is not what was declared.
        """
        flow = job.flow
        if flow is None or AFTER not in job.headers:
            return []
        parents = [member_id(flow, number) for number in numbers_in(job.headers[AFTER])]
        found: dict[UUID, Any] = {}
        for start in range(0, len(parents), _AT_ONCE):
            some = parents[start : start + _AT_ONCE]
            jobs = await self._store().get_many(some)
            found |= {each: self._value(each, jobs.get(each)) for each in some}
        return [found[parent] for parent in parents]

    def of_blocking(self, job: Job) -> list[Any]:
        """Do the same from a thread that runs no event loop."""
        return asyncio.run_coroutine_threadsafe(self.of(job), self._loop).result()

    def _value(self, job_id: UUID, job: Job | None) -> Any:
        if job is None:
            told = "its result is not kept any more: WINDLASS_RETENTION says for how long it is"
            raise ResultError(job_id, told)
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
            told = f"its result is not what its handler declares: {error}"
            raise ResultError(job.id, told) from error
