"""Owns the handle on a job: what became of it, in blocking and in awaitable form."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast
from uuid import UUID

from msgspec import Struct

from windlass.app.portal import refuse_in_event_loop
from windlass.core.durations import Duration, duration, human
from windlass.core.errors import JobCancelled, JobDead, ResultError, ResultTimeout, UnknownJob
from windlass.core.job import Job
from windlass.core.payload import decode_json
from windlass.core.secret import Sealing
from windlass.core.states import FINISHED, State

if TYPE_CHECKING:
    from windlass.app.app import Windlass

R = TypeVar("R")
_SHORTEST_LOOK = 0.002
_LONGEST_LOOK = 0.25


class Handle(Struct, Generic[R], eq=False, gc=False):
    """A job that was enqueued, now or before.

    `existing` says that this enqueue added nothing, since another job held its unique key: the
    handle is that job's.
    """

    _app: Windlass
    id: UUID
    _hint: Any = Any
    existing: bool = False

    def __repr__(self) -> str:
        """Show the id, and whether the job was there before."""
        return f"Handle({self.id}{', existing' if self.existing else ''})"

    async def ajob(self) -> Job:
        """Return everything that the store knows about the job.

        Raises:
            UnknownJob: it knows nothing (any more).
        """
        job = await self._app.store.get(self.id)
        if job is None:
            raise UnknownJob(self.id)
        return job

    async def astatus(self) -> State:
        """Return the job's state."""
        return (await self.ajob()).state

    async def acancel(self, reason: str = "cancelled by its producer") -> State:
        """Cancel the job: at once if it waits, soon if it runs. Return its state after that.

        Raises:
            IllegalMove: it is finished.
        """
        return (await self._app.control.cancel(self.id, reason=reason)).state

    async def aresult(self, timeout: Duration | None = None) -> R:
        """Wait until the job is finished, and return what its handler returned.

        Raises:
            ResultTimeout: it did not finish within the time given.
            JobDead: it failed for good.
            JobCancelled: it was cancelled.
        """
        until = None if timeout is None else time.monotonic() + duration(timeout).total_seconds()
        pause = _SHORTEST_LOOK
        while (job := await self.ajob()).state not in FINISHED:
            if until is not None and time.monotonic() >= until:
                waited = human(duration(timeout or 0))
                raise ResultTimeout(self.id, f"still {job.state} after {waited}")
            left = pause if until is None else max(until - time.monotonic(), 0)
            await asyncio.sleep(min(pause, left))
            pause = min(pause * 1.5, _LONGEST_LOOK)
        return self._value(job)

    def job(self) -> Job:
        """Do what `ajob` does, from a thread without an event loop."""
        refuse_in_event_loop("handle.job()", "await handle.ajob()")
        return self._app.portal.call(self.ajob())

    def status(self) -> State:
        """Do what `astatus` does, from a thread without an event loop."""
        refuse_in_event_loop("handle.status()", "await handle.astatus()")
        return self._app.portal.call(self.astatus())

    def cancel(self, reason: str = "cancelled by its producer") -> State:
        """Do what `acancel` does, from a thread without an event loop."""
        refuse_in_event_loop("handle.cancel()", "await handle.acancel()")
        return self._app.portal.call(self.acancel(reason))

    def result(self, timeout: Duration | None = None) -> R:
        """Do what `aresult` does, from a thread without an event loop."""
        refuse_in_event_loop("handle.result()", "await handle.aresult()")
        return self._app.portal.call(self.aresult(timeout))

    def _value(self, job: Job) -> R:
        if job.state is State.DEAD:
            error = None if job.error is None else str(job.error)
            raise JobDead(self.id, job.reason or "it failed", error)
        if job.state is State.CANCELLED:
            raise JobCancelled(self.id, f"cancelled: {job.reason}")
        if job.result is None:
            return cast("R", None)
        try:
            sealing = Sealing(self._app.vault, "result", job.kind)
            return cast("R", decode_json(job.result, self._hint, sealing=sealing))
        except (ValueError, NotImplementedError) as error:
            told = f"its result is not what its handler declares: {error}"
            raise ResultError(self.id, told) from error
