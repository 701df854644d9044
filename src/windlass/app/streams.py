"""Owns listening to the stream of a job: chunk after chunk, from the first one until its end."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

from windlass.app.loop_thread import refuse_in_event_loop
from windlass.core.errors import ResultError, ResultTimeout, StoreUnavailable, UnknownJob
from windlass.core.jobs.job import Job
from windlass.core.jobs.states import FINISHED
from windlass.core.jobs.streams import BEGIN, Position, StoredGroup, StreamPage, StreamRestart
from windlass.core.payloads.codec import decode_json
from windlass.core.values.durations import human

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.app.app import Windlass

C = TypeVar("C")
ReadPage = Callable[["UUID", Position, int], Awaitable[StreamPage]]
"""Reads a page of a stream, as `Store.stream_read` does."""
_GROUPS_AT_ONCE = 100
_MIN_POLL_SECONDS = 0.01
_MAX_POLL_SECONDS = 0.25
_OUTAGE_SECONDS = 30.0
"""Seconds for which a store may be unreachable before a listener gives up."""


class Listener:
    """Reads the stream of one job, a page at a time, from a position on."""

    def __init__(
        self,
        app: Windlass,
        job: UUID,
        *,
        chunk_type: Any,
        after: str | None,
        timeout: timedelta | None,
        check_end: Callable[[Job], object],
        read_page: ReadPage | None = None,
    ) -> None:
        """Listen from a position on; `read_page` reads, if it is not the store that does."""
        self.app = app
        self._job = job
        self._type = chunk_type
        self._timeout = timeout
        self._check_end = check_end
        self._read_page = read_page
        self._read_to = BEGIN if after is None else Position.parse(after)
        self.position = self._read_to
        """The position of the chunk that was taken last."""
        self._read: deque[tuple[Position, bytes | StreamRestart]] = deque()

    def take(self) -> Any:
        """Return the next chunk of those that were read.

        Raises:
            LookupError: all were taken.
            ResultError: it is none of the type that the listener expects.
        """
        self.position, chunk = self._read.popleft()
        if isinstance(chunk, StreamRestart):
            return chunk
        try:
            return decode_json(chunk, self._type)
        except (ValueError, NotImplementedError) as error:
            problem = f"chunk {self.position.number} of its stream is of another type: {error}"
            raise ResultError(self._job, problem) from error

    async def read(self) -> bool:
        """Read until there is a chunk to take; return False if the job is completed.

        Raises:
            ResultTimeout: there was no chunk for longer than the listener waits.
            JobDead: the job failed for good.
            JobCancelled: it was cancelled.
            UnknownJob: the store does not know it (any more).
            StoreUnavailable: the store was unreachable for too long.
        """
        began, pause = time.monotonic(), _MIN_POLL_SECONDS
        while not self._read:
            page = await self.read_once()
            if self._read or (not page.is_live and await self._has_ended()):
                break
            await self._wait(began, pause)
            pause = min(pause * 1.5, _MAX_POLL_SECONDS)
        return bool(self._read)

    async def read_once(self) -> StreamPage:
        """Read the next page, whether or not there is a chunk in it; return it.

        Raises:
            StoreUnavailable: the store was unreachable for too long.
        """
        page = await self._page()
        for group in page.groups:
            self._take_in(group)
        return page

    def _take_in(self, group: StoredGroup) -> None:
        attempt, number = self._read_to
        if attempt < group.attempt and group.first <= number:
            number = group.first - 1
            restart = StreamRestart(group.attempt, number)
            self._read.append((Position(group.attempt, number), restart))
        new = group.chunks[max(number - group.first + 1, 0) :]
        for place, chunk in enumerate(new, group.last - len(new) + 1):
            self._read.append((Position(group.attempt, place), chunk))
        self._read_to = Position(group.attempt, group.last)

    async def _page(self) -> StreamPage:
        """Read a page; a store that is away for a moment is asked again."""
        read_page = self._read_page or self.app.store.stream_read
        deadline, pause = time.monotonic() + _OUTAGE_SECONDS, _MIN_POLL_SECONDS
        while True:
            try:
                return await read_page(self._job, self._read_to, _GROUPS_AT_ONCE)
            except StoreUnavailable:
                if time.monotonic() + pause > deadline:
                    raise
            await asyncio.sleep(pause)
            pause = min(pause * 2, 1.0)

    async def _has_ended(self) -> bool:
        job = await self.app.store.get(self._job)
        if job is None:
            raise UnknownJob(self._job)
        if job.state not in FINISHED:
            return False  # It was redriven since.
        self._check_end(job)
        return True

    async def _wait(self, began: float, pause: float) -> None:
        if self._timeout is not None:
            left = began + self._timeout.total_seconds() - time.monotonic()
            if left <= 0:
                raise ResultTimeout(self._job, f"no chunk within {human(self._timeout)}")
            pause = min(pause, left)
        await asyncio.sleep(pause)


class AsyncStream(AsyncIterator[C | StreamRestart], Generic[C]):
    """The stream of a job, for `async for`; each of its items is a chunk, or a `StreamRestart`."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    @property
    def position(self) -> str:
        """Where it is, to go on from there later: `handle.astream(after=position)`."""
        return str(self._listener.position)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> C | StreamRestart:
        if not await self._listener.read():
            raise StopAsyncIteration
        return cast("C | StreamRestart", self._listener.take())


class Stream(Iterator[C | StreamRestart], Generic[C]):
    """The stream of a job, for `for`; each of its items is a chunk, or a `StreamRestart`."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    @property
    def position(self) -> str:
        """Where it is, to go on from there later: `handle.stream(after=position)`."""
        return str(self._listener.position)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> C | StreamRestart:
        refuse_in_event_loop("for chunk in handle.stream()", "async for chunk in handle.astream()")
        if not self._listener.app.portal.call(self._listener.read()):
            raise StopIteration
        return cast("C | StreamRestart", self._listener.take())
