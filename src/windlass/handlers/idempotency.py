"""Owns the lookup of an earlier job by an idempotency key, for coroutines and threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from windlass.core.jobs.job import Job
from windlass.store.protocol import Store


class DoneBefore:
    """Finds the job that was completed with the idempotency key of another, by a store and a loop.

    The store is opened on first use: a handler that never asks needs none.
    """

    def __init__(self, store: Callable[[], Store], loop: asyncio.AbstractEventLoop) -> None:
        self.store = store
        """Returns the store, opened on first use."""
        self._loop = loop

    async def find(self, job: Job) -> Job | None:
        """Return the first job that was completed with the same key; None if the job has no key."""
        key = job.idempotency_key
        return None if key is None else await self.store().done(job.kind, key)

    def find_blocking(self, job: Job) -> Job | None:
        """Do the same from a thread that runs no event loop."""
        if job.idempotency_key is None:
            return None
        return asyncio.run_coroutine_threadsafe(self.find(job), self._loop).result()
