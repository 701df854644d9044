"""Owns what the pages read from the store, once for all who look at the same moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from windlass.app.app import Windlass
from windlass.app.control.why import Why
from windlass.app.doctor.report import Report, examine_settings, examine_store
from windlass.app.masking import redaction_of
from windlass.app.snapshot import Snapshot, take_snapshot
from windlass.app.stats import Slow, gather_stats
from windlass.core.audit import AuditPage
from windlass.core.deploys import DeployMark
from windlass.core.jobs.bulk import BulkOperation
from windlass.core.jobs.job import Job
from windlass.core.jobs.queries import ErrorGroup, JobFilter, Page, Where
from windlass.core.payloads.masked_job import masked_group, masked_summary
from windlass.core.policies.breaker_record import BreakerStatus
from windlass.core.policies.limit_usage import LimitState
from windlass.core.schedules.status import ScheduleStatus
from windlass.core.stats.live_counts import Trend
from windlass.core.stats.stats import Stats
from windlass.core.workers import WorkerRecord
from windlass.core.workflows.flow_graph import FLOW_KIND

T = TypeVar("T")
_FRESH_SECONDS = 1.0
_DOCTOR_SECONDS = 10.0
_MAX_ENTRIES = 200
_FIGURES = "figures"
MAX_GROUPS = 100


@dataclass
class _Entry:
    until: float
    work: asyncio.Task[Any]


class Reads:
    """Reads that many viewers share: an answer serves everybody for a second.

    Fifty open pages cost the store what one costs. `forget` makes the next read go to the store.
    """

    def __init__(self, app: Windlass) -> None:
        self._app = app
        self._slow = Slow(app.store)
        self._trend = Trend()
        self._entries: dict[Hashable, _Entry] = {}

    def forget(self) -> None:
        """Read everything anew, after somebody changed something."""
        self._entries.clear()
        self._slow.forget()

    def refresh(self) -> None:
        """Read all but the figures anew, since those show that something changed."""
        self._entries = {key: each for key, each in self._entries.items() if key == _FIGURES}

    async def snapshot(self) -> Snapshot:
        return await self._shared(
            _FIGURES, lambda: take_snapshot(self._app, self._slow, self._trend)
        )

    async def workers(self) -> list[WorkerRecord]:
        return await self._shared("workers", self._app.store.workers)

    async def limits(self) -> list[LimitState]:
        return await self._shared("limits", self._app.control.alimits)

    async def breakers(self) -> list[BreakerStatus]:
        return await self._shared("breakers", self._app.control.abreakers)

    async def schedules(self) -> list[ScheduleStatus]:
        return await self._shared("schedules", self._app.schedules.alist)

    async def bulks(self) -> list[BulkOperation]:
        return await self._shared("bulks", self._app.control.abulks)

    async def deploys(self) -> list[DeployMark]:
        return await self._shared("deploys", self._app.control.adeploys)

    async def groups(self, kind: str | None = None, *, limit: int = MAX_GROUPS) -> list[ErrorGroup]:
        """Return the errors that jobs died of, masked."""

        async def read() -> list[ErrorGroup]:
            found = await self._app.control.aerror_groups(kind=kind, limit=limit)
            redaction = redaction_of(self._app)
            return [masked_group(each, redaction) for each in found]

        return await self._shared(("groups", kind, limit), read)

    async def jobs(self, where: Where | None, *, limit: int, after: UUID | None) -> Page:
        """Return a page of a listing, masked and without payloads; None finds nothing."""
        if where is None:
            return Page(jobs=(), after=None)

        async def read() -> Page:
            found = await self._app.control.afind(limit=limit, after=after, **where)
            redaction = redaction_of(self._app)
            return Page(
                jobs=tuple(masked_summary(job, redaction) for job in found.jobs),
                after=found.after,
                searched_to=found.searched_to,
            )

        return await self._shared(("jobs", repr(where), limit, after), read)

    async def stats(self, *, queue: str | None = None, kind: str | None = None) -> Stats:
        """Return all figures, or those of a queue, or of a kind."""
        if queue is None and kind is None:
            return (await self.snapshot()).stats

        async def read() -> Stats:
            redaction = redaction_of(self._app)
            return await gather_stats(
                self._app.store,
                redaction,
                queue=queue,
                kind=kind,
                slow=self._slow,
                trend=self._trend,
            )

        return await self._shared(("stats", queue, kind), read)

    def registered_kinds(self) -> Sequence[str]:
        """Return the kinds that have a handler in this app."""
        return list(self._app.registry)

    async def why(self, job_id: UUID) -> Why:
        """Return why a job does not run."""
        return await self._app.control.awhy(job_id)

    async def flows(self, *, limit: int) -> list[Job]:
        """Return the jobs of the newest flows."""
        return list((await self._app.store.find(JobFilter(kind=FLOW_KIND), limit=limit)).jobs)

    async def audit(self, **given: Any) -> AuditPage:
        """Return a page of the audit log: see `Control.aaudit`."""
        return await self._app.control.aaudit(**given)

    async def doctor(self) -> Report:
        """Return what `windlass doctor` finds."""

        async def read() -> Report:
            report = Report(app=self._app.home)
            examine_settings(self._app, report)
            await examine_store(self._app, report)
            return report

        return await self._shared("doctor", read, seconds=_DOCTOR_SECONDS)

    async def _shared(
        self, key: Hashable, read: Callable[[], Awaitable[T]], *, seconds: float = _FRESH_SECONDS
    ) -> T:
        now = time.monotonic()
        entry = self._entries.get(key)
        if entry is None or (entry.work.done() and entry.until <= now):
            self._drop_old(now)
            entry = _Entry(now + seconds, asyncio.ensure_future(_awaited(read)))
            self._entries[key] = entry
        try:
            # Shielded: a viewer who leaves does not cancel the read of the others.
            found: T = await asyncio.shield(entry.work)
        except Exception:
            if self._entries.get(key) is entry:
                del self._entries[key]
            raise
        return found

    def _drop_old(self, now: float) -> None:
        if len(self._entries) >= _MAX_ENTRIES:
            self._entries = {
                key: each
                for key, each in self._entries.items()
                if not each.work.done() or each.until > now
            }


async def _awaited(read: Callable[[], Awaitable[T]]) -> T:
    return await read()
