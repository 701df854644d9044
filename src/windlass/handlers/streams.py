"""Owns the stream of one run: its chunks are checked, buffered and stored in groups, in order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from windlass.core.errors import LeaseLost, PayloadInvalid, PayloadTooLarge
from windlass.core.jobs.job import Job
from windlass.core.jobs.streams import Appended, ChunkGroup, ChunkInvalid, StreamFull, StreamLimits
from windlass.core.payloads.codec import encode_json
from windlass.core.workflows.step_log import Steps

if TYPE_CHECKING:
    from windlass.handlers.run_state import RunState

_PAUSE_SECONDS = 0.02
"""Seconds between two groups, unless the run waits: at most fifty groups a second."""
_MAX_WAITING_CHUNKS = 500
_MAX_WAITING_BYTES = 256 * 1024
"""With more than that not stored yet, the handler waits."""


class StreamEnvironment(Struct, frozen=True, kw_only=True):
    """The services that the streams of runs need."""

    append: Callable[[Job, ChunkGroup], Awaitable[Appended]]
    """Stores a group; raises `LeaseLost` if the job's lease is gone."""
    loop: asyncio.AbstractEventLoop
    limits: StreamLimits


class _Waiting(NamedTuple):
    """A chunk that is not stored yet, and how far the job had come along its steps."""

    steps: int
    chunk: bytes


class RunStream:
    """The chunks of one run.

    Handlers add chunks in any thread; the event loop stores them, one group after the other, so
    that those which come meanwhile form the next. An attempt that follows others learns with its
    first chunk how much of their stream is kept.
    """

    def __init__(self, run: RunState, environment: StreamEnvironment) -> None:
        self._run = run
        self._job = run.job
        self._environment = environment
        self._resumed = Steps(run.job.steps).distance
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._waiting_bytes = 0
        self._steps = 0
        self._kept: Appended | None = Appended(0, 0) if run.job.attempt <= 1 else None
        """What this attempt keeps of earlier ones; None: the store has not said yet."""
        self._own = Appended(0, 0)
        self._stored = Appended(0, 0)
        """What this attempt has added, and what of it is stored."""
        self._is_storing = False
        self._storing: asyncio.Task[None] | None = None
        self._error: Exception | None = None
        self._callers = 0
        self._hurry = asyncio.Event()
        self._progress = asyncio.Event()

    async def add(self, value: Any) -> None:
        """Add a chunk, and wait while there are too many that are not stored."""
        if self._put(value):
            await self._until(self._has_room)

    def add_blocking(self, value: Any) -> None:
        """Do the same in the thread of a handler."""
        if self._put(value):
            self._block_on(self._until(self._has_room))

    async def flush(self) -> None:
        """Return once all chunks are stored.

        Raises: LeaseLost: the lease was lost, and another worker has the job.
        """
        if self._is_storing or self._error is not None:
            await self._until(lambda: not self._is_storing)

    def flush_blocking(self) -> None:
        """Do the same in the thread of a handler."""
        self._block_on(self.flush())

    # -- in the thread of the handler ------------------------------------------------------------

    def _put(self, value: Any) -> bool:
        """Take a chunk, and return whether its handler has to wait."""
        steps = self._distance()
        if steps is None:
            return False
        chunk = self._encoded(value)
        with self._lock:
            if self._error is not None:
                raise self._error
            own = self._own.plus(1, len(chunk))
            kept = self._kept or Appended(0, 0)
            self._environment.limits.check(*own.plus(*kept))
            self._own = own
            self._steps = max(self._steps, steps)  # Other tasks may have come by later steps.
            self._waiting.append(_Waiting(self._steps, chunk))
            self._waiting_bytes += len(chunk)
            if not self._is_storing:
                self._is_storing = True
                self._environment.loop.call_soon_threadsafe(self._begin)
            return not self._has_room()

    def _distance(self) -> int | None:
        """Return how far the job is along its steps; None if an earlier attempt streamed this."""
        steps = self._run.steps
        if steps is None:
            return None if self._resumed else 0
        return None if steps.is_replaying else steps.distance

    def _encoded(self, value: Any) -> bytes:
        limits = self._environment.limits
        try:
            return encode_json(self._job.kind, value, limit=limits.size)
        except PayloadTooLarge as large:
            raise StreamFull(1, large.size, limits) from None
        except PayloadInvalid as invalid:
            where = f"{invalid.field}: " if invalid.field else ""
            raise ChunkInvalid(self._job.kind, f"{where}{invalid.reason}") from None

    def _block_on(self, waiting: Any) -> None:
        asyncio.run_coroutine_threadsafe(waiting, self._environment.loop).result()

    # -- in the event loop -----------------------------------------------------------------------

    def _has_room(self) -> bool:
        is_small = self._waiting_bytes < _MAX_WAITING_BYTES
        return self._kept is not None and is_small and len(self._waiting) < _MAX_WAITING_CHUNKS

    async def _until(self, is_so: Callable[[], bool]) -> None:
        self._callers += 1
        self._hurry.set()
        try:
            while self._error is None and not is_so():
                await self._progress.wait()
        finally:
            self._callers -= 1
        if self._error is not None:
            raise self._error

    def _begin(self) -> None:
        self._storing = self._environment.loop.create_task(self._store(), name="windlass-stream")

    async def _store(self) -> None:
        try:
            while (group := self._next_group()) is not None:
                stored = await self._environment.append(self._job, group)
                with self._lock:
                    self._stored = own = self._stored.plus(len(group.chunks), group.size)
                    if self._kept is None:
                        self._kept = stored.plus(-own.chunks, -own.size)
                await self._pause()
        except BaseException as error:  # noqa: BLE001 - the handler, which waits for it, gets it.
            self._error = error if isinstance(error, Exception) else LeaseLost(self._job.id)
        finally:
            if self._error is not None:
                self._is_storing = False
            self._tell()

    async def _pause(self) -> None:
        self._tell()
        if self._callers == 0:
            self._hurry.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_PAUSE_SECONDS):
                    await self._hurry.wait()

    def _tell(self) -> None:
        progress, self._progress = self._progress, asyncio.Event()
        progress.set()

    def _next_group(self) -> ChunkGroup | None:
        """Take the chunks that come before the same step."""
        with self._lock:
            if not self._waiting or self._job.token is None:
                self._is_storing = False
                return None
            steps = self._waiting[0].steps
            chunks = [each.chunk for each in takewhile(lambda it: it.steps == steps, self._waiting)]
            self._waiting = self._waiting[len(chunks) :]
            self._waiting_bytes -= sum(map(len, chunks))
            return ChunkGroup(
                id=self._job.id,
                token=self._job.token,
                attempt=self._job.attempt,
                offset=self._stored.chunks,
                resumed=self._resumed,
                steps=steps,
                chunks=tuple(chunks),
            )
