"""Owns the writing of steps to the store, in groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from windlass.core.errors import LeaseLost
from windlass.core.jobs.job import Checkpoint, Job, Saga
from windlass.worker.engine.writing.fenced_writer import FencedWriter


class Checkpointer(FencedWriter[Checkpoint, Literal[True]]):
    """Writes the checkpoints of all runs, many at once."""

    name = "checkpointer"
    delayed_event = "checkpoint.delayed"

    async def record(self, job: Job, entries: tuple[str, ...], saga: Saga | None) -> None:
        """Add entries to the step log of a job, and return once they are stored.

        Raises: LeaseLost: the lease was lost, and another worker has the job.
        """
        if job.token is None:
            raise LeaseLost(job.id)
        await self.submit(job, Checkpoint(id=job.id, token=job.token, steps=entries, saga=saga))

    async def _send(self, items: Sequence[Checkpoint]) -> list[Literal[True] | None]:
        return [True if added else None for added in await self._store.checkpoint(items)]
