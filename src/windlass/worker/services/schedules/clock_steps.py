"""Owns the detection of steps of the store's clock: a worker logs a step, and after a step back has
the store move the jobs that would wait too long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from windlass.core.changes import Changes
from windlass.core.records import Json
from windlass.core.schedules.clock_step import LEAP, LEAST, RECORD, Step, read_step
from windlass.core.values.durations import human
from windlass.observability.logs import get_logger
from windlass.process.clocks import clock_of
from windlass.store import Store

log = get_logger("windlass.clock")
_NO_TIME = timedelta(0)
_BACK_REMEDY = (
    "retries keep their delays and waiting jobs their order; jobs with a delay or a given time "
    "wait until the clock reaches it"
)
_FORWARD_REMEDY = "jobs scheduled before that time are due now; this host may have been suspended"


class ClockSteps:
    """Compares the store's clock with the loop's at every answer of the store.

    A step may have happened before this worker started. So times that lie ahead of the clock are
    corrected as far as that is possible without the length of the step: with the second answer,
    since workers that were there before know more of the step, and notice it within a second.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._clock = clock_of(asyncio.get_running_loop())
        self._seen: datetime | None = None
        self._seen_at = 0.0
        self._is_new = True
        self._left: tuple[timedelta, datetime] | None = None
        """How far the clock went back, and its time then; kept until the jobs are moved."""

    def time(self) -> float:
        """Return the loop's time, to be passed to `look` with the store's next answer."""
        return self._clock()

    async def look(self, now: datetime, asked: float) -> None:
        """Compare the store's time with the last one; `asked` is the loop's time of the request."""
        passed = timedelta(seconds=self._clock() - self._seen_at)
        seen, self._seen, self._seen_at = self._seen, now, asked
        if seen is None:
            return
        if self._is_new:
            self._is_new, self._left = False, (_NO_TIME, seen)
        if now < seen - LEAST:
            # Kept until the jobs are moved, in case the store is unreachable until then.
            self._left = seen + passed - now, now - passed
        elif now > seen + passed + LEAP:
            await self._log_step(Step(by=now - seen - passed, at=now))
        if self._left is not None:
            await self._set_right(*self._left, now)
            self._left = None

    async def _set_right(self, by: timedelta, begin: datetime, now: datetime) -> None:
        # Before the step, the clock had shown `begin + by`.
        is_first = bool(by) and await self._is_first(Step(by=-by, at=now), seen=begin + by)
        # Only the first worker knows that retries were not moved yet; the rest is idempotent.
        moved = await self._store.recall(by if is_first else _NO_TIME, now - begin)
        if is_first:
            log.warning("clock.stepped", by=f"-{_about(by)}", moved=moved, effect=_BACK_REMEDY)
        elif moved:
            log.info("clock.jobs_recalled", moved=moved)

    async def _log_step(self, step: Step) -> None:
        if await self._is_first(step):
            log.warning("clock.stepped", by=_about(step.by), moved=0, effect=_FORWARD_REMEDY)

    async def _is_first(self, step: Step, seen: datetime | None = None) -> bool:
        """Record a step, and return whether no other worker had recorded it."""

        def decide(known: Mapping[str, Json], _now: datetime) -> Changes[bool]:
            last = read_step(known.get(RECORD))
            if last is not None and step.is_like(last, seen):
                return Changes(answer=False)
            return Changes(answer=True, records={RECORD: msgspec.to_builtins(step)})

        return (await self._store.apply([RECORD], decide)).answer


def _about(span: timedelta) -> str:
    return human(timedelta(seconds=round(span.total_seconds())))
