"""Owns the shape of every background loop: one `tick()`, started and stopped the same way."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from typing import Any

from windlass.core.errors import StoreUnavailable
from windlass.core.values.durations import backoff_seconds
from windlass.observability.logs import get_logger
from windlass.process.outage import Outage, is_away
from windlass.process.tasks import GuardedTask, is_cancelled
from windlass.process.waits import first

log = get_logger("windlass.service")
MAX_BACKOFF_SECONDS = 30.0
PROBE_SECONDS = 1.0
"""Seconds between the attempts of services that probe for all others whether the store is back."""


class Service:
    """A loop that ticks until it is stopped. A tick that fails is logged, and the loop
    continues.
    """

    name = "service"
    prompted = False
    """Whether its ticks begin by waiting for work from another part of this process."""
    longest_backoff = MAX_BACKOFF_SECONDS
    """Longest pause in seconds after ticks that fail again and again."""

    def __init__(self) -> None:
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._errors = 0
        self._outage = Outage()

    async def tick(self) -> float:
        """Do one round, and return the seconds until the next."""
        raise NotImplementedError

    async def round(self) -> None:
        """Do the work of a tick at once, for a caller that drives the service by hand."""
        await self.tick()

    def start(self, outage: Outage | None = None) -> None:
        """Start to tick; `outage` is what all services on one store know about it together."""
        self._outage = outage or self._outage
        loop = asyncio.get_running_loop()
        self._task = GuardedTask(self._run(), loop=loop, name=f"windlass-{self.name}")

    async def stop(self) -> None:
        """Finish the round under way, and stop. A round is never cut short: it may hold jobs."""
        self._stopping.set()
        if self._task is not None:
            # Not awaited directly: a program that ends may have cancelled the task before.
            await asyncio.wait({self._task})

    async def pause(self, seconds: float) -> None:
        """Wait for this long, or until the service is stopped."""
        if seconds <= 0:
            # A service that always has something to do still lets the others run.
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def _run(self) -> None:
        while not self._stopping.is_set():
            rings = self._outage.rings
            try:
                delay = await self.tick()
            except asyncio.CancelledError as error:
                # The round awaited something that was cancelled, which a job can do, too.
                if is_cancelled(self._task):
                    raise
                await self._wait_out(self._back_off(error), self._stopping.wait())
            except Exception as error:  # noqa: BLE001 - whatever it is, the loop goes on.
                if rings != self._outage.rings:
                    self._errors = 0  # The store came back while this call was still failing.
                delay = self._back_off(error)
                await self._wait_out(delay, self._stopping.wait())
            else:
                if self._errors:
                    self._errors = 0
                    self._outage.answered(self.name)
                await self.pause(delay)

    async def _wait_out(self, seconds: float, *events: Awaitable[Any]) -> None:
        """Wait after a failure, at most until the store answers any caller."""
        rings = self._outage.rings
        await first(self._outage.answer(), *events, patience=seconds)
        if rings != self._outage.rings:
            self._errors = min(self._errors, 1)

    def _back_off(self, error: BaseException) -> float:
        self._errors += 1
        jitter = random.random()  # noqa: S311 - spreads load, hides nothing.
        delay = backoff_seconds(self._errors, jitter, first=0.2, longest=self.longest_backoff)
        away = is_away(error)
        if away:
            self._outage.failed(self.name, error)
        tell = log.debug if away else log.warning
        tell(
            "service.failed",
            service=self.name,
            error=f"{type(error).__qualname__}: {error}",
            failures=self._errors,
            next_in=round(delay, 3),
            exc_info=self._errors == 1 and not isinstance(error, StoreUnavailable),
        )
        return delay


class RousableService(Service):
    """A service whose pause another part of this process may end."""

    def __init__(self) -> None:
        super().__init__()
        self._roused = asyncio.Event()

    def rouse(self) -> None:
        """Let the next round begin now."""
        self._roused.set()

    async def pause(self, seconds: float) -> None:
        """Wait for this long, or until there is something to do."""
        if seconds <= 0:
            await asyncio.sleep(0)
        else:
            await first(self._stopping.wait(), self._roused.wait(), patience=seconds)
