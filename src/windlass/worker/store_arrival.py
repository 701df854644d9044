"""Owns how a starting worker waits for a store that is not reachable yet."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

from windlass.core.errors import StoreRefused, StoreUnavailable
from windlass.core.values.durations import backoff_seconds, human
from windlass.observability.logs import get_logger
from windlass.process.outage import REMINDER_SECONDS
from windlass.process.waits import first

log = get_logger("windlass.worker")
_MAX_PAUSE_SECONDS = 1.0


class Stopped(Exception):
    """The worker was asked to stop before it served."""


class StoreArrival:
    """Repeats a step that needs the store until it succeeds, for as long as a worker may wait."""

    def __init__(self, patience: timedelta, stop: asyncio.Event) -> None:
        self._patience = patience
        self._stop = stop
        self._tries = 0
        self._since = 0.0
        self._reminded = 0.0

    async def of(self, attempt: Callable[[], Awaitable[None]]) -> None:
        """Repeat a step until the store is reachable.

        Raises: StoreUnavailable: the store was not reachable in time. StoreRefused: the store
        answers, and waiting would not help. Stopped: the worker was asked to stop.
        """
        self._since = self._reminded = time.monotonic()
        while True:
            try:
                await self._unless_stopped(attempt)
            except StoreRefused:
                raise
            except StoreUnavailable as error:
                left = self._since + self._patience.total_seconds() - time.monotonic()
                if left <= 0:
                    raise (self._late(error) if self._patience else error) from error.__cause__
                self._log_wait(error, left)
                await first(self._stop.wait(), patience=min(self._pause(), left))
            else:
                break
        if self._tries:
            waited = timedelta(seconds=round(time.monotonic() - self._since, 1))
            log.info("store.reached", waited=human(waited))
            self._tries = 0

    async def _unless_stopped(self, attempt: Callable[[], Awaitable[None]]) -> None:
        """Try once; a request to stop ends the wait for the answer."""
        trying, stopped = asyncio.ensure_future(attempt()), asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({trying, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not trying.done():
                raise Stopped
            await trying
        finally:
            trying.cancel()
            stopped.cancel()
            await asyncio.wait({trying, stopped}, timeout=_MAX_PAUSE_SECONDS)

    def _late(self, error: StoreUnavailable) -> StoreUnavailable:
        waited = human(timedelta(seconds=round(time.monotonic() - self._since, 1)))
        return StoreUnavailable(
            f"waited {waited} for the store: {error}; start it, or wait longer: --wait-for-store"
        )

    def _log_wait(self, error: StoreUnavailable, left: float) -> None:
        now = time.monotonic()
        if not self._tries or now - self._reminded >= REMINDER_SECONDS:
            self._reminded = now
            log.warning(
                "store.awaited",
                error=str(error),
                gives_up_in=human(timedelta(seconds=round(left))),
                remedy="wait if it is starting; else correct the URL, or raise --wait-for-store",
            )
        self._tries += 1

    def _pause(self) -> float:
        jitter = random.random()  # noqa: S311 - spreads load, hides nothing.
        return backoff_seconds(self._tries, jitter, first=0.2, longest=_MAX_PAUSE_SECONDS)
