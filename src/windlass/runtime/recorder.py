"""Owns the way of steps into the store: what waits while one group is written makes the next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from windlass.core.errors import Fenced, StoreBusy, StoreUnavailable
from windlass.core.job import Checkpoint, Job, Saga
from windlass.observe.logs import get_logger
from windlass.observe.running import fields_of
from windlass.runtime.service import Service
from windlass.store import Store

log = get_logger("windlass.recorder")
_HANDFUL = 8
_ASIDE = 1.0
"""Seconds after which what was set aside is tried again."""


class _Note(NamedTuple):
    """What a run adds to the log of its job, and where it waits for that."""

    job: Job
    checkpoint: Checkpoint
    answer: asyncio.Future[None]


class Recorder(Service):
    """Writes the checkpoints of all runs, many at once.

    While the store is away they wait, and their runs with them; so does one whose row somebody else
    holds, since what it tells has happened. A group of unknown fate is written again: an entry that
    is there twice says nothing new.
    """

    name = "recorder"
    prompted = True

    def __init__(self, store: Store, *, fenced: Callable[[Job], None]) -> None:
        super().__init__()
        self._store = store
        self._fenced = fenced
        self._waiting: list[_Note] = []
        self._under_way: list[_Note] = []
        self._aside: list[_Note] = []
        self._added = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def record(self, job: Job, entries: tuple[str, ...], saga: Saga | None) -> None:
        """Add to the log of a job's steps, and return once that is in the store.

        Raises:
            Fenced: the lease is gone, and others have the job.
        """
        if job.token is None or self._stopping.is_set():
            raise Fenced(job.id)
        checkpoint = Checkpoint(id=job.id, token=job.token, steps=entries, saga=saga)
        note = _Note(job, checkpoint, self._loop.create_future())
        self._add(note)
        await note.answer

    def _add(self, note: _Note) -> None:
        if not self._waiting:
            self._added.set()
        self._waiting.append(note)

    async def stop(self) -> None:
        """End; who still waits belongs to a run that has ended without its handler."""
        self._added.set()
        await super().stop()
        for note in (*self._under_way, *self._waiting, *self._aside):
            note.answer.cancel()

    async def tick(self) -> float:
        if not self._waiting and not self._under_way and not self._stopping.is_set():
            self._added.clear()
            await self._added.wait()
        while self._waiting or self._under_way:
            if not self._under_way:
                self._under_way, self._waiting = self._waiting, []
            await self._write(self._under_way)
            self._under_way = []
        return 0

    async def _write(self, group: list[_Note]) -> None:
        try:
            added = await self._store.checkpoint([note.checkpoint for note in group])
        except Exception as error:
            if isinstance(error, StoreUnavailable) and not isinstance(error, StoreBusy):
                raise
            await self._write_singly(group, error)
            return
        # The next group goes before anybody is told of this one: the store shall not wait for us.
        self._loop.call_soon(self._tell, list(zip(group, added, strict=True)))

    def _tell(self, answers: list[tuple[_Note, bool]]) -> None:
        """Let runs go on, a handful in each turn of the loop: between them others may begin."""
        for note, is_added in answers[:_HANDFUL]:
            if not is_added:
                self._refuse(note, Fenced(note.job.id))
                self._fenced(note.job)
            elif not note.answer.done():
                note.answer.set_result(None)
        if len(answers) > _HANDFUL:
            self._loop.call_soon(self._tell, answers[_HANDFUL:])

    async def _write_singly(self, group: list[_Note], error: Exception) -> None:
        """Find what the store cannot take now, and let it hold up nobody else."""
        if len(group) > 1:
            for note in group:
                await self._write([note])
        elif isinstance(error, StoreBusy):
            self._set_aside(group[0], error)
        else:
            self._refuse(group[0], error)

    def _set_aside(self, note: _Note, error: StoreBusy) -> None:
        """Keep for later what somebody holds: a step that was done must not be done again."""
        log.warning("checkpoint.delayed", **fields_of(note.job), error=str(error))
        self._aside.append(note)
        self._loop.call_later(_ASIDE, self._take_up)

    def _take_up(self) -> None:
        aside, self._aside = self._aside, []
        for note in aside:
            self._add(note)

    def _refuse(self, note: _Note, error: Exception) -> None:
        if not note.answer.done():
            note.answer.set_exception(error)
            note.answer.exception()  # It may be that nobody waits any more; that is no error.
