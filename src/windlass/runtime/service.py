"""Owns the shape of every background loop: one `tick()`, started and stopped the same way."""

from __future__ import annotations

import asyncio
import random

from windlass.observe.logs import get_logger

log = get_logger("windlass.service")
_LONGEST_BACKOFF = 30.0


class Service:
    """A loop that ticks until it is stopped. A tick that fails is logged, and the loop goes on."""

    name = "service"
    prompted = False
    """Whether its rounds begin by waiting for somebody in this process to bring it work."""

    def __init__(self) -> None:
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._errors = 0

    async def tick(self) -> float:
        """Do one round, and return how many seconds may pass until the next."""
        raise NotImplementedError

    async def round(self) -> None:
        """Do what a tick does at once, for somebody who makes its rounds by hand."""
        await self.tick()

    def start(self) -> None:
        """Begin to tick."""
        self._task = asyncio.create_task(self._run(), name=f"windlass-{self.name}")

    async def stop(self) -> None:
        """Finish the round under way, and end. A round is never cut short: it may hold jobs."""
        self._stopping.set()
        if self._task is not None:
            # Not awaited itself: a program that ends may have cancelled it before us.
            await asyncio.wait({self._task})

    async def pause(self, seconds: float) -> None:
        """Wait, but no longer than until the service is stopped."""
        if seconds <= 0:
            # Even a service that has always something to do lets the others have their turn.
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                delay = await self.tick()
                self._errors = 0
            except Exception as error:  # noqa: BLE001 - whatever it is, the loop goes on.
                delay = self._back_off(error)
            await self.pause(delay)

    def _back_off(self, error: Exception) -> float:
        self._errors += 1
        longest: float = min(0.1 * 2 ** min(self._errors, 20), _LONGEST_BACKOFF)
        delay = longest * random.uniform(0.5, 1)  # noqa: S311 - spreads load, hides nothing.
        log.warning(
            "service.failed",
            service=self.name,
            error=f"{type(error).__qualname__}: {error}",
            failures=self._errors,
            next_in=round(delay, 3),
            exc_info=self._errors == 1,
        )
        return delay
