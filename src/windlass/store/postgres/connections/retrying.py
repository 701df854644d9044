"""Owns retries while the server is unreachable for a moment, and whether the write happened.

Only requests that may be repeated are retried: a job whose id is known is not added again.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import TypeVar

import psycopg

from windlass.core.errors import StoreUnavailable, WriteUncertain
from windlass.core.values.durations import backoff_seconds

T = TypeVar("T")
_MAX_TRIES = 5
_FIRST_PAUSE_SECONDS = 0.05
_UNCERTAIN_STATES = ("08", "57P", "40003")
"""SQLSTATEs after which a commit may have happened: lost connections, and a server shutdown."""


class Fate:
    """Whether a request may have been written, over all attempts."""

    __slots__ = ("_uncertain", "sent")

    def __init__(self) -> None:
        self.sent = False
        """Whether this attempt has sent the request."""
        self._uncertain = False

    def failed(self, error: StoreUnavailable) -> None:
        """Record how an attempt ended."""
        self._uncertain = self._uncertain or (self.sent and _may_be_written(error.__cause__))
        self.sent = False

    def error(self, last: StoreUnavailable) -> StoreUnavailable:
        """Return the exception to raise after the last attempt."""
        return WriteUncertain(str(last)) if self._uncertain else last


def persist(say: Callable[[Fate, float], T], timeout: timedelta) -> T:
    """Send a request within a time, with retries while the server is unreachable.

    Raises: WriteUncertain: the request was sent, and the server did not answer. StoreUnavailable:
    it was not written.
    """
    deadline = time.monotonic() + timeout.total_seconds()
    fate = Fate()
    for pause in _pauses():
        try:
            return say(fate, max(deadline - time.monotonic(), 0.001))
        except StoreUnavailable as error:
            fate.failed(error)
            if pause is None or time.monotonic() + pause >= deadline:
                raise fate.error(error) from error.__cause__
            time.sleep(pause)
    raise AssertionError("unreachable")


async def apersist(
    say: Callable[[Fate], Awaitable[T]], timeout: timedelta | None, location: str
) -> T:
    """Do the same in an event loop.

    Raises: WriteUncertain: the request was sent, and the server did not answer. StoreUnavailable:
    it was not written.
    """
    seconds = None if timeout is None else timeout.total_seconds()
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    fate = Fate()
    try:
        async with asyncio.timeout(seconds):
            for pause in _pauses():
                try:
                    return await say(fate)
                except StoreUnavailable as error:
                    fate.failed(error)
                    if pause is None or time.monotonic() + pause >= deadline:
                        raise fate.error(error) from error.__cause__
                    await asyncio.sleep(pause)
    except TimeoutError as late:
        message = f"{location} did not answer within {seconds:g} s, or the event loop was blocked"
        unanswered = StoreUnavailable(message)
        unanswered.__cause__ = late
        fate.failed(unanswered)
        raise fate.error(unanswered) from late
    raise AssertionError("unreachable")


def _pauses() -> Iterator[float | None]:
    """Return the pause after each attempt; None after the last."""
    for failures in range(1, _MAX_TRIES):
        jitter = random.random()  # noqa: S311 - spreads load.
        yield backoff_seconds(failures, jitter, first=_FIRST_PAUSE_SECONDS, longest=1.0)
    yield None


def _may_be_written(cause: BaseException | None) -> bool:
    """Return whether the outcome of a failed request is unknown: the server has not reported it."""
    state = cause.sqlstate if isinstance(cause, psycopg.Error) else None
    return state is None or state.startswith(_UNCERTAIN_STATES)
