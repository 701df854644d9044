"""Owns what the pages read from the store, once for all who look at the same moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from windlass.app.app import Windlass
from windlass.app.control.why import Why
from windlass.app.doctor.report import Report, examine_settings, examine_store
from windlass.app.masking import redaction_of
from windlass.app.snapshot import Snapshot, take_snapshot
from windlass.app.stats import Slow, gather_stats
from windlass.app.workflows.flow_view import FlowView, view_of, viewed
from windlass.core.audit import AuditPage
from windlass.core.deploys import DeployMark
from windlass.core.errors import FlowInvalid, UnknownJob
from windlass.core.jobs.bulk import BulkOperation
from windlass.core.jobs.ids import made_at
from windlass.core.jobs.job import FLOW, Job
from windlass.core.jobs.queries import ErrorGroups, JobFilter, Page, Where
from windlass.core.payloads.masked_job import masked_groups, masked_summary
from windlass.core.policies.breaker_record import BreakerStatus
from windlass.core.policies.limit_usage import LimitState
from windlass.core.records import RecordPage
from windlass.core.schedules.status import ScheduleStatus
from windlass.core.search.scan import Budget
from windlass.core.stats.live_counts import Trend
from windlass.core.stats.stats import Stats
from windlass.core.workers import WorkerRecord
from windlass.core.workflows.flow_graph import FLOW_KIND

T = TypeVar("T")
_FRESH_SECONDS = 1.0
_DOCTOR_SECONDS = 10.0
_MAX_ENTRIES = 200
_FIGURES = "figures"
FLOWS_BUDGET = Budget(rows=20_000)
"""Few jobs are flows, and no index has them: how many are looked at for the newest ones."""
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

    async def upcoming(self, name: str, count: int) -> list[datetime]:
        """Return when a schedule will tick."""
        key = ("upcoming", name, count)
        return await self._shared(key, lambda: self._app.schedules.aupcoming(name, count))

    async def groups(self, kind: str | None = None, *, limit: int = MAX_GROUPS) -> ErrorGroups:
        """Return the errors that jobs died of, masked."""

        async def read() -> ErrorGroups:
            found = await self._app.control.aerror_groups(kind=kind, limit=limit)
            return masked_groups(found, redaction_of(self._app))

        return await self._shared(("groups", kind, limit), read)

    async def jobs(self, where: Where | None, *, limit: int, after: UUID | None) -> Page:
        """Return a page of a listing, masked and without payloads; None finds nothing."""
        if where is None:
            return Page(jobs=(), after=None)

        async def read() -> Page:
            found = await self._app.jobs.afind(limit=limit, after=after, **where)
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

    async def find_job(self, given: str, *, kind: str | None = None) -> Job:
        """Return the job with an id, or with the beginning of one; it is not masked.

        Raises:
            ValueError: it cannot be the beginning of an id.
            UnknownJob: there is none.
            AmbiguousId: several jobs have such an id.
        """

        async def read() -> Job:
            job_id = await self._app.jobs.ajob_id(given, kind=kind)
            job = await self._app.store.get(job_id)
            if job is None:
                raise UnknownJob(job_id)
            return job

        return await self._shared(("job", given, kind), read)

    async def why(self, job_id: UUID) -> Why:
        """Return why a job does not run."""
        return await self._shared(("why", job_id), lambda: self._app.control.awhy(job_id))

    async def audit(self, **which: Any) -> AuditPage:
        """Return a page of the audit log: see `Control.aaudit`."""
        key = ("audit", *sorted((name, repr(value)) for name, value in which.items()))
        return await self._shared(key, lambda: self._app.control.aaudit(**which))

    async def flows(self, limit: int) -> tuple[list[FlowView], datetime | None]:
        """Return the newest flows, and how far back was looked if that was not all."""

        async def read() -> tuple[list[FlowView], datetime | None]:
            which, store = JobFilter(kind=FLOW_KIND), self._app.store
            page = await store.find(which, limit=limit, budget=FLOWS_BUDGET)
            jobs = {each.id: each for each in page.jobs} | await self._flows_under_way(limit)
            newest = [jobs[flow_id] for flow_id in sorted(jobs, reverse=True)[:limit]]
            return await views_of(self._app, newest), looked_back_to(page)

        return await self._shared(("flows", limit), read)

    async def _flows_under_way(self, limit: int) -> dict[UUID, Job]:
        """Return flows by their records, which they have until they end: however old they are."""
        records = await self._app.store.records(FLOW, RecordPage(limit))
        ids = []
        for name in records:
            with suppress(ValueError):
                ids.append(UUID(name.removeprefix(FLOW)))
        found = await self._app.store.get_many(ids)
        return {key: job for key, job in found.items() if job.kind == FLOW_KIND}

    async def flow(self, flow_id: UUID) -> FlowView:
        """Return one flow."""
        return await self._shared(("flow", flow_id), lambda: view_of(self._app.store, flow_id))

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


async def views_of(app: Windlass, flows: Iterable[Job]) -> list[FlowView]:
    """Return how far flows came, by their own jobs; what is no flow is left out."""
    views = []
    for each in flows:
        with suppress(FlowInvalid):
            views.append(await viewed(app.store, each))
    return views


def looked_back_to(page: Page) -> datetime | None:
    """Return how far back a page looked, if that was not all."""
    return None if page.searched_to is None else made_at(page.searched_to)
