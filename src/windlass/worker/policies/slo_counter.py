"""Owns a worker's part in service-level targets: it counts starts and logs late ones."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial

from windlass.core.changes import Changes
from windlass.core.jobs.job import Job
from windlass.core.policies.slo import TARGETS, Tally, counted, tally
from windlass.core.records import Json
from windlass.core.values.durations import human
from windlass.observability.logs import get_logger
from windlass.observability.meters import Meters
from windlass.process.clocks import clock_of
from windlass.process.service import Service
from windlass.store import Store

log = get_logger("windlass.slo")
_COUNT_SECONDS = 1.0
_QUIET_SECONDS = 10.0
"""Seconds until a kind that was logged as late is logged again."""


class SloCounter(Service):
    """Counts the starts of kinds that have a target, in the store, at most once a second."""

    name = "slo"

    def __init__(
        self,
        store: Store,
        targets: Mapping[str, timedelta],
        *,
        meters: Meters,
    ) -> None:
        super().__init__()
        self._meters = meters
        self._store = store
        self._targets = targets
        self._now = clock_of(asyncio.get_running_loop())
        self._news: dict[str, Tally] = {}
        self._unlogged: dict[str, Tally] = {}
        self._logged_at: dict[str, float] = {}

    def __bool__(self) -> bool:
        return bool(self._targets)

    def began(self, job: Job) -> None:
        """Count a start."""
        target = self._targets.get(job.kind)
        if target is not None and (seen := tally(job, target)).started:
            self._news[job.kind] = self._news.get(job.kind, Tally()) + seen
            self._meters.started(job.kind, late=seen.late > 0)

    async def stop(self) -> None:
        """Stop, with everything counted."""
        await super().stop()
        await self.tick()

    async def tick(self) -> float:
        news, self._news = self._news, {}
        for kind, seen in news.items():
            if seen.late:
                self._unlogged[kind] = self._unlogged.get(kind, Tally()) + seen
        self._log_late()
        try:
            while news:
                kind = next(iter(news))
                await self._count(kind, news[kind])
                del news[kind]
        finally:
            for kind, seen in news.items():
                self._news[kind] = self._news.get(kind, Tally()) + seen
        return _COUNT_SECONDS

    async def _count(self, kind: str, news: Tally) -> None:
        name = TARGETS + kind
        await self._store.apply([name], partial(_counted, name, news, self._targets[kind]))

    def _log_late(self) -> None:
        for kind, seen in list(self._unlogged.items()):
            if (
                self._now() - self._logged_at.get(kind, -_QUIET_SECONDS) >= _QUIET_SECONDS
                and seen.last is not None
            ):
                self._logged_at[kind] = self._now()
                del self._unlogged[kind]
                log.warning(
                    "slo.missed",
                    kind=kind,
                    target=human(self._targets[kind]),
                    late=seen.late,
                    worst=human(seen.worst),
                    last_job=str(seen.last.job),
                )


def _counted(
    name: str, news: Tally, target: timedelta, known: Mapping[str, Json], now: datetime
) -> Changes[None]:
    return Changes(answer=None, records={name: counted(known.get(name), news, target, now)})
