"""Owns the time budget of a worker's shutdown: the limit of each step, and the current one."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from datetime import timedelta

from windlass.process.grace_periods import WORKER_GRACE
from windlass.process.outage import Outage
from windlass.process.waits import within

STEP_SECONDS = 2.0
"""Seconds that a step may take."""
_MIN_STEP_SECONDS = 0.2
_ALL_STEPS = WORKER_GRACE - timedelta(seconds=1)
"""Time that all steps may take beyond the shutdown timeout, so that the process ends by itself."""


class Shutdown:
    """The steps of a shutdown: a store that does not answer would use up the time of each."""

    def __init__(self, shutdown_timeout: timedelta, outage: Outage) -> None:
        self._patience = (shutdown_timeout + _ALL_STEPS).total_seconds()
        self._outage = outage
        self._ends_by = 0.0
        self.step = "the start"

    def begin(self) -> None:
        """Start the clock."""
        self._ends_by = time.monotonic() + self._patience

    async def take(self, step: str, work: Awaitable[object]) -> None:
        """Run a step; one that does not end in time is logged and abandoned."""
        self.step = step
        left = max(self._ends_by - time.monotonic(), _MIN_STEP_SECONDS)
        trouble = self._outage.trouble
        store = {"store": trouble} if trouble else {}
        await within(min(STEP_SECONDS, left), step, work, **store)

    @property
    def waits_for(self) -> str:
        """The current step, with the store's error if it is unreachable."""
        trouble = self._outage.trouble
        why = f"; the store does not answer: {trouble}" if trouble else ""
        return f"the shutdown waits for {self.step}{why}"
