"""Owns small writes of event loops: those of one turn of a loop share a transaction.

Where commits are quick, the loop's own thread writes: to hand a write to the writer thread and its
answer back takes longer than the write and its flush, and takes it from the loop as well.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from typing import Any, NamedTuple, TypeVar

from windlass.store.sqlite.connections.threads import Failure, Operation, Writer

T = TypeVar("T")
_MAX_GROUP = 32
"""Most operations that share a transaction: the loop stands still meanwhile."""


class _Write(NamedTuple):
    operation: Operation[Any]
    answer: asyncio.Future[Any]


class LoopWrites:
    """The writes that wait for the next turn of one event loop."""

    def __init__(self, loop: AbstractEventLoop, writer: Writer) -> None:
        self._loop = loop
        self._writer = writer
        self._waiting: list[_Write] = []

    def serves(self, loop: AbstractEventLoop, writer: Writer) -> bool:
        """Return whether this is for the same loop and writer."""
        return self._loop is loop and self._writer is writer

    async def write(self, operation: Operation[T]) -> T:
        """Run a durable operation in the loop's next turn, with the others of this one.

        Raises:
            Deferred: that would have to wait; nothing is written.
            Closed: the writer takes no more operations; nothing is written.
            StoreError: it failed, and is not written.
        """
        answer: asyncio.Future[T] = self._loop.create_future()
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(_Write(operation, answer))
        return await answer

    def _flush(self) -> None:
        group, self._waiting = self._waiting[:_MAX_GROUP], self._waiting[_MAX_GROUP:]
        if self._waiting:
            self._loop.call_soon(self._flush)
        # A caller that was cancelled before this turn relies on nothing being written.
        group = [write for write in group if not write.answer.done()]
        if not group:
            return
        try:
            answers = self._writer.write_at_once([write.operation for write in group])
        except BaseException as error:
            answers = [Failure(error)] * len(group)
            if not isinstance(error, Exception):
                raise
        finally:
            for write, answer in zip(group, answers, strict=True):
                _answer(write.answer, answer)


def _answer(caller: asyncio.Future[Any], answer: object) -> None:
    if caller.done():
        return  # A signal has cancelled it during the write.
    if isinstance(answer, Failure):
        caller.set_exception(answer.error)
    else:
        caller.set_result(answer)
