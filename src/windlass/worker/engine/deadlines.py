"""Owns the timeouts of runs: one timer serves all of them."""

from __future__ import annotations

import asyncio
import math
from datetime import timedelta
from typing import TYPE_CHECKING

from windlass.core.jobs.job import Job
from windlass.core.jobs.outcomes import TimedOut
from windlass.handlers.registry import Registration, Registry
from windlass.process.clocks import clock_of
from windlass.worker.engine.runs import Run

if TYPE_CHECKING:
    from windlass.worker.engine.engine import Engine


class Deadlines:
    """Stops every run that takes longer than its timeout."""

    def __init__(self, engine: Engine, registry: Registry, default: timedelta) -> None:
        self._engine = engine
        self._registry = registry
        self._default = default
        self._timeouts: dict[str, float] = {}
        self._loop = asyncio.get_running_loop()
        self._now = clock_of(self._loop)
        self._next_check = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def set(self, run: Run, registration: Registration, since: float) -> None:
        """Start the timeout of a run, counted from a moment of the loop's clock."""
        seconds = self._timeouts.get(registration.kind)
        if seconds is None or run.job.timeout is not None:
            timeout = run.job.timeout or registration.timeout_or(self._default)
            seconds = math.inf if timeout is None else timeout.total_seconds()
            if run.job.timeout is None:
                self._timeouts[registration.kind] = seconds
        run.deadline = deadline = since + seconds
        if deadline < self._next_check:
            self._check_at(deadline)

    def _check_at(self, moment: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next_check = moment
        self._timer = self._loop.call_later(moment - self._now(), self._check)

    def _check(self) -> None:
        self._next_check, self._timer = math.inf, None
        now, runs = self._now(), self._engine.runs
        for run in list(runs):
            if run.deadline <= now:
                run.deadline = math.inf
                self._engine.stop_run(run, TimedOut(after=self._timeout_of(run.job)))
        earliest = min((run.deadline for run in runs), default=math.inf)
        if earliest < math.inf:
            self._check_at(earliest)

    def _timeout_of(self, job: Job) -> timedelta:
        return job.timeout or timedelta(seconds=self._timeouts[self._registry[job.kind].kind])
