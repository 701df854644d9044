"""Owns answers that many viewers share: for how long they are kept, and how many at most."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
_MAX_ANSWERS = 200


@dataclass(frozen=True)
class _Answer:
    until: float
    work: asyncio.Task[Any]
    lasts: bool

    def serves(self, now: float) -> bool:
        """Return whether it is under way, or is still fresh."""
        return not self.work.done() or (self.until > now and not self.work.cancelled())


class SharedAnswers(Generic[K]):
    """Answers by their questions: all who ask while one is fresh get it, or wait for it.

    An answer is dropped when it is no longer fresh, asked for or not: what it holds may be large.
    There are never more than `most` of them; the oldest makes room.
    """

    def __init__(self, seconds: float, *, most: int = _MAX_ANSWERS) -> None:
        self._seconds = seconds
        self._most = most
        self._answers: dict[K, _Answer] = {}

    def __len__(self) -> int:
        return len(self._answers)

    def forget(self) -> None:
        """Ask all questions anew; who waits for an answer still gets it."""
        self._answers.clear()

    def refresh(self) -> None:
        """Ask all questions anew but those whose answers last."""
        self._answers = {key: each for key, each in self._answers.items() if each.lasts}

    async def get(
        self,
        key: K,
        read: Callable[[], Awaitable[T]],
        *,
        seconds: float | None = None,
        lasts: bool = False,
    ) -> T:
        """Return the answer to a question, which `read` finds; it is fresh for some seconds.

        One that `lasts` is kept for them whatever changes, unless all are forgotten.
        Answers that are errors are raised by all who wait for them, and not kept.
        """
        now = time.monotonic()
        answer = self._answers.get(key)
        if answer is None or not answer.serves(now):
            until = now + (self._seconds if seconds is None else seconds)
            answer = _Answer(until, asyncio.ensure_future(_awaited(read)), lasts)
            self._keep(key, answer)
        # Shielded: a viewer who leaves does not cancel the read of the others.
        found: T = await asyncio.shield(answer.work)
        return found

    def _keep(self, key: K, answer: _Answer) -> None:
        self._answers.pop(key, None)
        if len(self._answers) >= self._most:
            del self._answers[next(iter(self._answers))]
        self._answers[key] = answer
        answer.work.add_done_callback(lambda _: self._drop_later(key, answer))

    def _drop_later(self, key: K, answer: _Answer) -> None:
        if answer.work.cancelled() or answer.work.exception() is not None:
            self._drop(key, answer)
            return
        fresh = max(answer.until - time.monotonic(), 0.0)
        asyncio.get_running_loop().call_later(fresh, self._drop, key, answer)

    def _drop(self, key: K, answer: _Answer) -> None:
        if self._answers.get(key) is answer:
            del self._answers[key]


async def _awaited(read: Callable[[], Awaitable[T]]) -> T:
    return await read()
