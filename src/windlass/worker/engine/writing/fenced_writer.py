"""Owns writing what runs add to their jobs, under their fences, in groups that are answered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from windlass.core.errors import LeaseLost, StoreBusy, StoreUnavailable
from windlass.core.jobs.job import Job
from windlass.observability.log_context import fields_of
from windlass.observability.logs import get_logger
from windlass.store import Store
from windlass.worker.engine.writing.group_writer import GroupWriter

if TYPE_CHECKING:
    from windlass.worker.engine.engine import Engine

I = TypeVar("I")  # noqa: E741 - an item.
A = TypeVar("A")
_RESUMED_PER_TURN = 8


class Note(NamedTuple):
    """An item that a run adds to its job, and the future that it awaits."""

    job: Job
    item: Any
    answer: asyncio.Future[Any]


class FencedWriter(GroupWriter[Note], Generic[I, A]):
    """Writes items of all runs, many at once; each run waits for the answer to its own.

    While the store is unreachable, or another transaction locks the row, the runs wait. A group
    whose fate is unknown is written again: an item that is stored twice changes nothing.
    """

    delayed_event = "write.delayed"

    def __init__(self, store: Store, engine: Engine) -> None:
        super().__init__(store)
        self._engine = engine

    async def submit(self, job: Job, item: I) -> A:
        """Write an item, and return the store's answer.

        Raises: LeaseLost: the lease was lost, and another worker has the job.
        """
        if job.token is None or self._stopping.is_set():
            raise LeaseLost(job.id)
        note = Note(job, item, self._loop.create_future())
        self._add(note)
        answer: A = await note.answer
        return answer

    async def stop(self) -> None:
        """Stop; runs that still wait here have ended without their handlers."""
        await super().stop()
        for note in self._unwritten():
            note.answer.cancel()

    async def _send(self, items: Sequence[I]) -> Sequence[A | None]:
        """Give the items to the store; return an answer for each, None if its fence is lost."""
        raise NotImplementedError

    async def _write(self, group: list[Note]) -> None:
        try:
            answers = await self._send([note.item for note in group])
        except Exception as error:
            if isinstance(error, StoreUnavailable) and not isinstance(error, StoreBusy):
                raise
            await self._write_singly(group, error)
            return
        # The next group is sent before these runs resume, so that the store is never idle.
        self._loop.call_soon(self._resume_runs, list(zip(group, answers, strict=True)))

    def _resume_runs(self, answers: list[tuple[Note, A | None]]) -> None:
        """Resume runs, a few in each turn of the event loop, so that other runs can begin."""
        for note, answer in answers[:_RESUMED_PER_TURN]:
            if answer is None:
                self._refuse(note, LeaseLost(note.job.id))
                self._engine.stop_fenced(note.job)
            elif not note.answer.done():
                note.answer.set_result(answer)
        if len(answers) > _RESUMED_PER_TURN:
            self._loop.call_soon(self._resume_runs, answers[_RESUMED_PER_TURN:])

    async def _write_singly(self, group: list[Note], error: Exception) -> None:
        """Write the notes one by one, so that a note the store rejects does not block
        the others.
        """
        if len(group) > 1:
            for note in group:
                await self._write([note])
        elif isinstance(error, StoreBusy):
            # Kept for later: what a run has done must not be done again.
            log = get_logger(f"windlass.{self.name}")
            log.warning(self.delayed_event, **fields_of(group[0].job), error=str(error))
            self._set_aside(group[0])
        else:
            self._refuse(group[0], error)

    def _refuse(self, note: Note, error: Exception) -> None:
        if not note.answer.done():
            note.answer.set_exception(error)
            note.answer.exception()  # Retrieved, since no run may be waiting for it any more.
