"""Owns the handle on a job: its state and result, in blocking and in awaitable form."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast, overload
from uuid import UUID

from msgspec import Struct

from windlass.app.loop_thread import blocking
from windlass.app.streams import AsyncStream, Listener, Stream
from windlass.core.errors import JobCancelled, JobDead, ResultError, ResultTimeout, UnknownJob
from windlass.core.jobs.job import Job
from windlass.core.jobs.states import FINISHED, WAITING, State
from windlass.core.payloads.codec import decode_json
from windlass.core.payloads.secret import Sealing
from windlass.core.values.durations import Duration, duration, human

if TYPE_CHECKING:
    from windlass.app.app import Windlass

R = TypeVar("R")
T = TypeVar("T")
C = TypeVar("C")
_MIN_POLL_SECONDS = 0.002
_MAX_POLL_SECONDS = 0.25
_STANDS_STILL = "under travel() jobs run only in t.run_due() and t.advance(...); call one first"
_STANDS_STILL_SECONDS = 3.0
"""Seconds after which a job that waits under `travel` is given up: another task may run it."""


class Handle(Struct, Generic[R], eq=False, gc=False):
    """A job that was enqueued, now or before.

    `is_duplicate` says that this enqueue added nothing, since another job held its unique key: the
    handle is that job's.
    """

    _written: ClassVar[str] = "handle"
    _app: Windlass
    id: UUID
    _hint: Any = Any
    is_duplicate: bool = False

    def __repr__(self) -> str:
        """Show the id, and whether the job was there before."""
        return f"Handle({self.id}{', duplicate' if self.is_duplicate else ''})"

    async def ainfo(self) -> Job:
        """Return everything that the store knows about the job.

        Raises:
            UnknownJob: it knows nothing (any more).
        """
        job = await self._app.store.get(self.id)
        if job is None:
            raise UnknownJob(self.id)
        return job

    info = blocking(ainfo)

    async def astate(self) -> State:
        """Return the job's state."""
        return (await self.ainfo()).state

    state = blocking(astate)

    async def acancel(self, reason: str = "cancelled by its producer") -> State:
        """Cancel the job: at once if it waits, soon if it runs. Return its state after that.

        Raises:
            InvalidTransition: it is finished.
        """
        return (await self._app.control.unaudited.acancel(self.id, reason=reason)).state

    cancel = blocking(acancel)

    async def aresult(self, timeout: Duration | None = None) -> R:
        """Wait until the job is finished, and return what its handler returned.

        Raises:
            ResultTimeout: it did not finish within the time given.
            JobDead: it failed for good.
            JobCancelled: it was cancelled.
        """
        began = time.monotonic()
        until = None if timeout is None else began + duration(timeout, "timeout").total_seconds()
        pause = _MIN_POLL_SECONDS
        while (job := await self.ainfo()).state not in FINISHED:
            if until is not None and time.monotonic() >= until:
                waited = human(duration(timeout or 0))
                raise ResultTimeout(self.id, f"still {job.state} after {waited}")
            if until is None and job.state in WAITING and self._waits_for_a_test(began):
                raise ResultTimeout(self.id, f"still {job.state}; {_STANDS_STILL}")
            left = pause if until is None else max(until - time.monotonic(), 0)
            await asyncio.sleep(min(pause, left))
            pause = min(pause * 1.5, _MAX_POLL_SECONDS)
        return self._value(job)

    result = blocking(aresult)

    def _waits_for_a_test(self, began: float) -> bool:
        """Return whether nothing will run the job, as far as a few seconds tell."""
        stands_still = self._app.store.capabilities.stands_still
        return stands_still and time.monotonic() - began > _STANDS_STILL_SECONDS

    @overload
    def astream(
        self, *, after: str | None = None, timeout: Duration | None = None
    ) -> AsyncStream[Any]: ...
    @overload
    def astream(
        self, chunk_type: type[C], *, after: str | None = None, timeout: Duration | None = None
    ) -> AsyncStream[C]: ...
    def astream(
        self, chunk_type: Any = Any, *, after: str | None = None, timeout: Duration | None = None
    ) -> AsyncStream[Any]:
        """Listen to what the job streams: `async for chunk in handle.astream()`.

        It begins with the first chunk, whenever the listener comes, or after a position that
        another stream of the job had. It ends when the job is completed. When a new attempt streams
        again what was here before, a `StreamRestart` comes first. Chunks are of the `chunk_type`,
        if one is given. A store that is away for a moment is asked again.

        Raises:
            ResultTimeout: no chunk came within the timeout.
            JobDead: it failed for good.
            JobCancelled: it was cancelled.
            ResultError: a chunk is not of the type given.
            ValueError: `after` is not a position.
        """
        return AsyncStream(self._listener(chunk_type, after, timeout))

    @overload
    def stream(
        self, *, after: str | None = None, timeout: Duration | None = None
    ) -> Stream[Any]: ...
    @overload
    def stream(
        self, chunk_type: type[C], *, after: str | None = None, timeout: Duration | None = None
    ) -> Stream[C]: ...
    def stream(
        self, chunk_type: Any = Any, *, after: str | None = None, timeout: Duration | None = None
    ) -> Stream[Any]:
        """Listen as `astream` does, in a thread: `for chunk in handle.stream()`."""
        return Stream(self._listener(chunk_type, after, timeout))

    def _listener(self, chunk_type: Any, after: str | None, timeout: Duration | None) -> Listener:
        return Listener(
            self._app,
            self.id,
            chunk_type=chunk_type,
            after=after,
            timeout=None if timeout is None else duration(timeout, "timeout"),
            check_end=_check_end,
        )

    def _block_on(self, work: Coroutine[Any, Any, T]) -> T:
        return self._app.portal.call(work)

    def _value(self, job: Job) -> R:
        _check_end(job)
        if job.result is None:
            return cast("R", None)
        try:
            sealing = Sealing(self._app.encryption, "result", job.kind)
            return cast("R", decode_json(job.result, self._hint, sealing=sealing))
        except (ValueError, NotImplementedError) as error:
            problem = f"its result does not match the return type of its handler: {error}"
            raise ResultError(self.id, problem) from error


def _check_end(job: Job) -> None:
    """Raise for a job that has ended otherwise than by being completed."""
    if job.state is State.DEAD:
        error = None if job.error is None else str(job.error)
        raise JobDead(job.id, job.reason or "it failed", error)
    if job.state is State.CANCELLED:
        raise JobCancelled(job.id, f"cancelled: {job.reason}")
