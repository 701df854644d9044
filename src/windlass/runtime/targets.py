"""Owns what a worker sees of service-level targets: it counts starts, and tells of late ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial

from windlass.core.changes import Changes
from windlass.core.durations import human
from windlass.core.job import Job, Json
from windlass.core.targets import TARGETS, Tally, counted, tally
from windlass.observe.logs import get_logger
from windlass.runtime.service import Service
from windlass.store import Store

log = get_logger("windlass.slo")
_COUNTING = 1.0
_QUIET = 10.0
"""Seconds for which a kind that was told to be late is not told to be so again."""


class Watch(Service):
    """Counts the starts of kinds that have a target, in the store, once a second at most."""

    name = "slo"

    def __init__(
        self, store: Store, targets: Mapping[str, timedelta], *, now: Callable[[], float]
    ) -> None:
        super().__init__()
        self._store = store
        self._targets = targets
        self._now = now
        self._news: dict[str, Tally] = {}
        self._untold: dict[str, Tally] = {}
        self._told_at: dict[str, float] = {}

    def __bool__(self) -> bool:
        return bool(self._targets)

    def began(self, job: Job) -> None:
        """Take notice of a start."""
        target = self._targets.get(job.kind)
        if target is not None and (seen := tally(job, target)).started:
            self._news[job.kind] = self._news.get(job.kind, Tally()) + seen

    async def stop(self) -> None:
        """End, with everything counted."""
        await super().stop()
        await self.tick()

    async def tick(self) -> float:
        news, self._news = self._news, {}
        for kind, seen in news.items():
            if seen.late:
                self._untold[kind] = self._untold.get(kind, Tally()) + seen
        self._tell()
        try:
            while news:
                kind = next(iter(news))
                await self._count(kind, news[kind])
                del news[kind]
        finally:
            for kind, seen in news.items():
                self._news[kind] = self._news.get(kind, Tally()) + seen
        return _COUNTING

    async def _count(self, kind: str, news: Tally) -> None:
        name = TARGETS + kind
        await self._store.apply([name], partial(_counted, name, news, self._targets[kind]))

    def _tell(self) -> None:
        for kind, seen in list(self._untold.items()):
            if self._now() - self._told_at.get(kind, -_QUIET) >= _QUIET and seen.last is not None:
                self._told_at[kind] = self._now()
                del self._untold[kind]
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
