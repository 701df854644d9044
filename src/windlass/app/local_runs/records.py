"""Owns what a local run writes: everything, under a lease of its own, or nothing."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Protocol, cast

from windlass.app.local_runs.unrecorded import RolledBack, UnrecordedStore
from windlass.core.errors import LeaseLost, StoreError, StoreUnavailable
from windlass.core.jobs.job import Checkpoint, Job, Progress, Saga
from windlass.core.jobs.outcomes import Released
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.streams import Appended, ChunkGroup
from windlass.observability.logs import get_logger
from windlass.store import Store
from windlass.worker.engine.settler import Settler

log = get_logger("windlass.local_run")
_AGAIN_SECONDS = 1.0


class Records(Protocol):
    """Where a run writes to, and where it reads what others have written."""

    store: Store
    streamed: Appended
    transactions: int
    """How many transactions were rolled back."""

    async def checkpoint(self, job: Job, entries: tuple[str, ...], saga: Saga | None) -> None:
        """Write steps."""

    async def append(self, job: Job, group: ChunkGroup) -> Appended:
        """Write chunks of the stream."""

    def transact(self, settling: Transition) -> Any:
        """Return the transaction of the handler."""

    def report(self, job: Job, progress: Progress) -> None:
        """Note the progress; it may be written later."""

    async def write_progress(self) -> None:
        """Write the latest progress, if there is any that is not written."""

    async def settle(self, move: Transition) -> None:
        """Write the latest progress and the outcome."""

    async def interrupted(self, job: Job, settler: Settler, elapsed: timedelta) -> None:
        """End a run that was broken off."""


class Nothing:
    """A run of which nothing is recorded."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.store = cast("Store", UnrecordedStore(store))
        self.streamed = Appended(0, 0)
        self.transactions = 0

    async def checkpoint(self, job: Job, entries: tuple[str, ...], saga: Saga | None) -> None:
        del job, entries, saga

    async def append(self, job: Job, group: ChunkGroup) -> Appended:
        del job
        self.streamed = self.streamed.plus(len(group.chunks), sum(map(len, group.chunks)))
        return self.streamed

    def transact(self, settling: Transition) -> Any:
        self.transactions += 1
        return RolledBack(self._store.transaction(settling))

    def report(self, job: Job, progress: Progress) -> None:
        del job, progress

    async def write_progress(self) -> None:
        return None

    async def settle(self, move: Transition) -> None:
        del move

    async def interrupted(self, job: Job, settler: Settler, elapsed: timedelta) -> None:
        del job, settler, elapsed


class Everything:
    """A run that is recorded as a worker records it, under the fence of the taken job."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.streamed = Appended(0, 0)
        self.transactions = 0
        self._progress: tuple[Job, Progress] | None = None

    async def checkpoint(self, job: Job, entries: tuple[str, ...], saga: Saga | None) -> None:
        added = Checkpoint(id=job.id, token=_token(job), steps=entries, saga=saga)
        _check(job, *await self.store.checkpoint([added]))

    async def append(self, job: Job, group: ChunkGroup) -> Appended:
        (appended,) = await self.store.stream_append([group])
        if appended is None:
            raise LeaseLost(job.id)
        self.streamed = appended
        return appended

    def transact(self, settling: Transition) -> Any:
        return self.store.transaction(settling)

    def report(self, job: Job, progress: Progress) -> None:
        self._progress = job, progress

    async def write_progress(self) -> None:
        latest = self._progress
        if latest is None:
            return
        job, progress = latest
        try:
            await self.store.progress(job.id, _token(job), progress)
        except StoreError as error:
            log.warning("progress.not_written", job_id=str(job.id), error=str(error))
        # Cleared only now: the end of the run cancels a write under way, and writes once more.
        if self._progress is latest:
            self._progress = None

    async def settle(self, move: Transition) -> None:
        """Write the latest progress and the outcome, also if the caller is cancelled meanwhile.

        The outcome is written however often that has to be tried; the lease is renewed meanwhile.
        """
        writing = asyncio.ensure_future(self._end(move))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait({writing})
            raise

    async def _end(self, move: Transition) -> None:
        await self.write_progress()
        await self._settle(move)

    async def _settle(self, move: Transition) -> None:
        tried = False
        while True:
            try:
                (settled,) = await self.store.settle([move])
            except StoreUnavailable as error:
                log.warning("settle.delayed", job_id=str(move.id), error=str(error))
                tried = True
                await asyncio.sleep(_AGAIN_SECONDS)
            else:
                if not settled and not (tried and await self._is_written(move)):
                    raise LeaseLost(move.id)
                return

    async def _is_written(self, move: Transition) -> bool:
        """Return whether an attempt that seemed to fail has written the outcome."""
        job = await self.store.get(move.id)
        return job is not None and job.state is move.state

    async def interrupted(self, job: Job, settler: Settler, elapsed: timedelta) -> None:
        """Give the job back, as a worker does that ends."""
        move = settler.settle_job(job, Released(reason="interrupted"), elapsed)
        await asyncio.shield(self.store.settle([move]))


def _token(job: Job) -> int:
    assert job.token is not None  # noqa: S101 - a taken job has one.
    return job.token


def _check(job: Job, written: bool) -> None:
    if not written:
        raise LeaseLost(job.id)
