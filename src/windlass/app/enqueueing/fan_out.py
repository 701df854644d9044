"""Owns fan-out: one event, many jobs, of which there may be too many for one enqueue."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from typing import Any

from msgspec import Struct

from windlass.app.handle import Handle
from windlass.app.producer import Draft
from windlass.core.errors import FanOutTooLarge
from windlass.core.policies.limit import Rate, read_rate

MAX_JOBS = 100_000
CHUNK_JOBS = 1_000
_PACE_SECONDS = 0.1
"""Seconds between two chunks, where a rate is kept."""


class FanOut(Struct, frozen=True, kw_only=True):
    """The result of a fan-out: how many jobs were added, and how many existed already."""

    added: int = 0
    duplicates: int = 0

    @property
    def total(self) -> int:
        """How many jobs there were."""
        return self.added + self.duplicates


def counted(handles: Sequence[Handle[Any]]) -> FanOut:
    """Return how many of these jobs were added, and how many existed already."""
    duplicates = sum(handle.is_duplicate for handle in handles)
    return FanOut(added=len(handles) - duplicates, duplicates=duplicates)


Progress = Callable[[FanOut], None]


class Plan(Struct, frozen=True, kw_only=True):
    """The options of a fan-out, checked."""

    atomic: bool
    at_most: int
    chunk: int
    rate: Rate | None

    @classmethod
    def of(cls, *, atomic: bool, at_most: int, chunk: int, rate: str | None) -> Plan:
        """Check the options of a fan-out.

        Raises:
            ValueError: it makes no sense.
        """
        counts: dict[str, object] = {"at_most": at_most, "chunk": chunk}
        for option, value in counts.items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{option} must be a whole number of at least 1, got {value!r}")
        if atomic and rate is not None:
            raise ValueError("atomic=True cannot be combined with rate=; leave one out")
        return cls(
            atomic=atomic,
            at_most=at_most,
            chunk=chunk,
            rate=None if rate is None else read_rate(rate),
        )

    @property
    def size(self) -> int:
        """How many jobs are enqueued together."""
        if self.atomic:
            return self.at_most
        if self.rate is None:
            return self.chunk
        in_a_step = int(self.rate.starts * _PACE_SECONDS / self.rate.period)
        return max(1, min(self.chunk, in_a_step))

    def due(self, count: int) -> float:
        """Return how many seconds after the start the job of this number may be enqueued."""
        return 0.0 if self.rate is None else count * self.rate.period / self.rate.starts

    def check(self, done: FanOut, count: int) -> None:
        """Raise if this number of jobs exceeds `at_most`.

        Raises:
            FanOutTooLarge: it would.
        """
        if done.total + count > self.at_most:
            raise FanOutTooLarge(self.at_most, done.total)


def stream(
    drafts: Iterable[Draft[Any]],
    plan: Plan,
    enqueue: Callable[[list[Draft[Any]]], FanOut],
    progress: Progress,
) -> FanOut:
    """Enqueue the drafts of an iterable, chunk by chunk."""
    done, began, source = FanOut(), time.monotonic(), iter(drafts)
    while piece := _piece(source, plan, done):
        time.sleep(max(0.0, began + plan.due(done.total) - time.monotonic()))
        done = _sum(done, enqueue(piece))
        progress(done)
    return done


async def astream(
    drafts: Iterable[Draft[Any]] | AsyncIterable[Draft[Any]],
    plan: Plan,
    enqueue: Callable[[list[Draft[Any]]], Awaitable[FanOut]],
    progress: Progress,
) -> FanOut:
    """Enqueue the drafts of an iterable from a coroutine."""
    done, began = FanOut(), time.monotonic()
    source = aiter(drafts) if isinstance(drafts, AsyncIterable) else _asynced(drafts)
    while piece := await _apiece(source, plan, done):
        await asyncio.sleep(max(0.0, began + plan.due(done.total) - time.monotonic()))
        done = _sum(done, await enqueue(piece))
        progress(done)
    return done


async def _asynced(drafts: Iterable[Draft[Any]]) -> AsyncIterator[Draft[Any]]:
    for draft in drafts:
        yield draft


def _piece(source: Iterator[Draft[Any]], plan: Plan, done: FanOut) -> list[Draft[Any]]:
    # One more than fits into an atomic enqueue, to detect that there are too many.
    piece = list(itertools.islice(source, plan.size + plan.atomic))
    plan.check(done, len(piece))
    return piece


async def _apiece(source: AsyncIterator[Draft[Any]], plan: Plan, done: FanOut) -> list[Draft[Any]]:
    piece: list[Draft[Any]] = []
    while len(piece) < plan.size + plan.atomic:
        try:
            piece.append(await anext(source))
        except StopAsyncIteration:
            break
    plan.check(done, len(piece))
    return piece


def _sum(one: FanOut, other: FanOut) -> FanOut:
    return FanOut(added=one.added + other.added, duplicates=one.duplicates + other.duplicates)
