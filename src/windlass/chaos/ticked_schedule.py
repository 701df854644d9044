"""Owns the schedule of a storm: it begins to tick, catches up after the faults, and is paused."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import datetime

from windlass.app import Windlass
from windlass.chaos.laws.history import Ticking
from windlass.chaos.terms import INTERVAL, SCHEDULE
from windlass.core.errors import StoreError

_LOOK_SECONDS = 0.25
_CATCH_UP_LIMIT = 1_000


class TickedSchedule:
    """One schedule that ticks from the beginning of a storm to its end."""

    def __init__(self, app: Windlass) -> None:
        self._app = app
        self._first: datetime | None = None
        self._began = self._ended = 0.0

    @property
    def ticking(self) -> Ticking | None:
        """When it ticked; None: it never began."""
        if self._first is None:
            return None
        return Ticking(first=self._first.isoformat(), began=self._began, ended=self._ended)

    async def begin(self) -> None:
        """Begin to tick. Every tick makes a job, whatever became of the ones before."""
        status = await self._app.schedules.aput(
            SCHEDULE,
            "tick",
            {},
            every=f"{INTERVAL}s",
            catch_up="all",
            catch_up_limit=_CATCH_UP_LIMIT,
            overlap="allow",
        )
        self._began, self._first = time.monotonic(), status.record.next

    def end(self) -> None:
        """Record that the storm is over: ticks until now must make their jobs."""
        self._ended = time.monotonic()

    async def catch_up(self, patience: float) -> None:
        """Wait until every tick that is due has been made, then pause, with or without them.

        It gives up when no tick was made for as long as `patience` says.
        """
        due = latest = None
        since = time.monotonic()
        while time.monotonic() - since < 2 * patience:
            with suppress(StoreError, OSError):
                status = await self._app.schedules.aget(SCHEDULE)
                upcoming = status.record.next
                if upcoming is None or self._first is None:
                    return
                due = due or max(status.now, self._first)
                if upcoming > due or time.monotonic() - since > patience:
                    await self._app.schedules.apause(SCHEDULE)
                    return
                if upcoming != latest:
                    latest, since = upcoming, time.monotonic()
            await asyncio.sleep(_LOOK_SECONDS)
