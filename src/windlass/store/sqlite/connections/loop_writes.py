"""Owns small writes of event loops: those of one turn of a loop share a transaction.

Where commits are quick, the loop's own thread writes: to hand a write to the writer thread and its
answer back takes longer than the write and its flush, and takes it from the loop as well.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from windlass.core.errors import StoreUnavailable
from windlass.store.sqlite.connections.threads import Closed, Deferred, Failure, Writer

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Run = Callable[[sqlite3.Connection, Sequence[Item]], list[Answer]]
"""Writes items, of one caller or of many, and returns an answer for each."""
_MAX_GROUP = 32
"""Most callers that share a transaction: the loop stands still meanwhile."""
_ALONE_SECONDS = 0.002
"""Seconds for which a caller that is alone may write without letting the loop turn."""


_Write = tuple[Sequence[Any], asyncio.Future[Any]]
"""The items of a caller, and the future that it waits for."""


class LoopWrites(Generic[Item, Answer]):
    """The writes that wait for their turn in one event loop."""

    def __init__(self, loop: AbstractEventLoop, writer: Writer, run: Run[Item, Answer]) -> None:
        self.loop = loop
        self.writer = writer
        self._run = run
        self._waiting: list[_Write] = []
        self._is_scheduled = False
        self._is_alone = False
        """Whether the last turn had one caller."""
        self._alone_until = 0.0
        self._pausing = 0
        """Callers that were alone, and let the loop turn before they write again."""

    @property
    def may_write_alone(self) -> bool:
        """Whether the last turn had one caller: its next writes need not wait for another turn."""
        return time.monotonic() < self._alone_until and not self._waiting

    def write_alone(self, items: Sequence[Item], is_statement: bool) -> list[Answer]:
        """Write items durably at once, for a caller that is alone: raises what `write` does.

        A turn of the loop would take longer than all the rest but the flush. `is_statement` says
        that these items are a single statement.
        """
        run = self._run
        return self.writer.write_here(lambda db: run(db, items), is_statement=is_statement)

    async def write(self, items: Sequence[Item], is_statement: bool) -> list[Answer]:
        """Write items durably at the end of this turn of the loop, or in the next one.

        Raises:
            Deferred: that would have to wait; nothing is written.
            Closed: the writer takes no more operations; nothing is written.
            StoreError: it failed, and is not written.
        """
        if self._is_alone and not self._waiting and await self._is_still_alone():
            return self.write_alone(items, is_statement)
        answer: asyncio.Future[list[Answer]] = self.loop.create_future()
        self._waiting.append((items, answer))
        self._schedule()
        return await answer

    async def _is_still_alone(self) -> bool:
        """Let the loop turn, and return whether no other caller has come meanwhile."""
        self._pausing += 1
        try:
            await asyncio.sleep(0)
        finally:
            self._pausing -= 1
        if self._pausing or self._waiting:
            self._is_alone = False
            return False
        self._alone_until = time.monotonic() + _ALONE_SECONDS
        return True

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_scheduled = False
        if not self._waiting:
            return
        group, self._waiting = self._waiting[:_MAX_GROUP], self._waiting[_MAX_GROUP:]
        # A caller that was cancelled before this turn relies on nothing being written.
        group = [write for write in group if not write[1].done()]
        try:
            answers = self._written(group) if group else []
        except BaseException as error:
            answers = [Failure(error)] * len(group)
            if not isinstance(error, Exception):
                raise
        finally:
            for (_, caller), answer in zip(group, answers, strict=True):
                _answer(caller, answer)
            self._is_alone = len(group) == 1
            self._alone_until = time.monotonic() + _ALONE_SECONDS if self._is_alone else 0.0
            # Behind the callers, who go on in the next turn: what they write then, many of them
            # in a loop of their own, waits for no other turn.
            self._schedule()

    def _written(self, group: list[_Write]) -> list[Any]:
        run = self._run
        if len(group) > 1:
            items = [item for items, _ in group for item in items]
            try:
                (answers,) = self.writer.write_at_once([lambda db: run(db, items)])
            except (StoreUnavailable, Deferred, Closed):
                raise
            except Exception:  # noqa: BLE001 - nothing is written, and the one at fault gets its error.
                return self.writer.write_at_once([_alone(run, items) for items, _ in group])
            return _shared(answers, group)
        return self.writer.write_at_once([_alone(run, items) for items, _ in group])


def _alone(run: Run[Any, Any], items: Sequence[Any]) -> Callable[[sqlite3.Connection], list[Any]]:
    return lambda db: run(db, items)


def _shared(answers: list[Any], group: list[_Write]) -> list[Any]:
    """Return the answers of each caller out of those of all."""
    shares, start = [], 0
    for items, _ in group:
        end = start + len(items)
        shares.append(answers[start:end])
        start = end
    return shares


def _answer(caller: asyncio.Future[Any], answer: object) -> None:
    if caller.done():
        return  # A signal has cancelled it during the write.
    if isinstance(answer, Failure):
        caller.set_exception(answer.error)
    else:
        caller.set_result(answer)
