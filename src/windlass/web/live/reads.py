"""Owns what the pages read from the store, once for all who look at the same moment."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from windlass.app.app import Windlass
from windlass.app.control.why import Why
from windlass.app.doctor.report import Report, examine_settings, examine_store
from windlass.app.masking import redaction_of
from windlass.app.snapshot import Snapshot, take_snapshot
from windlass.app.stats import Slow
from windlass.app.workflows.flow_view import FlowView, view_of
from windlass.core.audit import AuditPage
from windlass.core.deploys import DeployMark
from windlass.core.errors import UnknownJob
from windlass.core.jobs.bulk import BulkOperation
from windlass.core.jobs.job import Job
from windlass.core.jobs.queries import ErrorGroups, Page, Where
from windlass.core.payloads.masked_job import masked_groups, masked_summary
from windlass.core.policies.breaker_record import BreakerStatus
from windlass.core.policies.limit_usage import LimitState
from windlass.core.schedules.status import ScheduleStatus
from windlass.core.stats.error_stats import MOST as MOST_ERRORS
from windlass.core.stats.live_counts import Trend
from windlass.core.stats.stats import Stats, StatsFacts, stats_of
from windlass.core.workers import WorkerRecord
from windlass.web.access.own_jobs import Members, members_of
from windlass.web.live.flow_reads import FlowsPage, read_flows
from windlass.web.live.shared_answers import SharedAnswers

_FRESH_SECONDS = 1.0
_DOCTOR_SECONDS = 10.0
_ERRORS_SECONDS = 15.0
_MEMBERS_SECONDS = 10.0
MAX_GROUPS = 100
MAX_COMPARED = 1_000
"""Errors among which rare ones are looked for: those of a kind, or those that are new."""


class Reads:
    """Reads that many viewers share: an answer serves all of them for a second.

    Fifty open pages cost the store what one costs. `forget` makes the next read go to the store.
    """

    def __init__(self, app: Windlass) -> None:
        self._app = app
        self._slow = Slow(app.store)
        self._trend = Trend()
        self._answers = SharedAnswers[Hashable](_FRESH_SECONDS)

    def forget(self) -> None:
        """Read everything anew, after an action changed something."""
        self._answers.forget()
        self._slow.forget()

    def refresh(self) -> None:
        """Read all but the figures anew, since those show that something changed.

        What takes long to read stays for the seconds that it lasts, too.
        """
        self._answers.refresh()

    async def snapshot(self) -> Snapshot:
        return await self._answers.get(
            "figures", lambda: take_snapshot(self._app, self._slow, self._trend), lasts=True
        )

    async def workers(self) -> list[WorkerRecord]:
        return await self._answers.get("workers", self._app.store.workers)

    async def limits(self) -> list[LimitState]:
        return await self._answers.get("limits", self._app.control.alimits)

    async def breakers(self) -> list[BreakerStatus]:
        return await self._answers.get("breakers", self._app.control.abreakers)

    async def schedules(self) -> list[ScheduleStatus]:
        return await self._answers.get("schedules", self._app.schedules.alist)

    async def bulks(self) -> list[BulkOperation]:
        return await self._answers.get("bulks", self._app.control.abulks)

    async def deploys(self) -> list[DeployMark]:
        return await self._answers.get("deploys", self._app.control.adeploys)

    async def groups(self, kind: str | None = None, *, limit: int = MAX_GROUPS) -> ErrorGroups:
        """Return the errors that jobs died of, masked."""

        async def read() -> ErrorGroups:
            return masked_groups(await self._groups(kind, limit), redaction_of(self._app))

        return await self._answers.get(("groups", kind, limit), read)

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

        return await self._answers.get(("jobs", repr(where), limit, after), read)

    async def stats(
        self, *, queue: str | None = None, kind: str | None = None, most_errors: int = MOST_ERRORS
    ) -> Stats:
        """Return all figures, or those of a queue, or of a kind."""
        if queue is None and kind is None and most_errors == MOST_ERRORS:
            return (await self.snapshot()).stats
        facts = await self.facts()
        if kind is not None or most_errors > MOST_ERRORS:
            # The figures of everything leave out errors that are rare.
            groups = await self._rare_groups(kind)
            facts = replace(facts, groups=groups, groups_searched_to=groups.searched_to)
        return stats_of(facts, queue=queue, kind=kind, most_errors=most_errors)

    async def _rare_groups(self, kind: str | None) -> ErrorGroups:
        """Return more errors than `groups`, read as often as those of the figures."""
        return await self._answers.get(
            ("rare groups", kind, self._slow.reads),
            lambda: self._groups(kind, MAX_COMPARED),
            seconds=_ERRORS_SECONDS,
            lasts=True,
        )

    async def _groups(self, kind: str | None, limit: int) -> ErrorGroups:
        # No store has a kind with this character, and some refuse to be asked.
        if "\0" in (kind or ""):
            return ErrorGroups()
        return await self._app.control.aerror_groups(kind=kind, limit=limit)

    async def facts(self) -> StatsFacts:
        """Return the data of which all figures are made."""
        facts = (await self.snapshot()).facts
        if facts is None:
            raise TypeError("a shared snapshot must keep its facts, got none")
        return facts

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

        return await self._answers.get(("job", given, kind), read)

    async def why(self, job_id: UUID) -> Why:
        """Return why a job does not run."""
        return await self._answers.get(("why", job_id), lambda: self._app.control.awhy(job_id))

    async def audit(self, **which: Any) -> AuditPage:
        """Return a page of the audit log: see `Control.aaudit`."""
        key = ("audit", *sorted((name, repr(value)) for name, value in which.items()))
        return await self._answers.get(key, lambda: self._app.control.aaudit(**which))

    async def flows(
        self, limit: int, *, after: UUID | None = None, queues: tuple[str, ...] | None = None
    ) -> FlowsPage:
        """Return a page of flows, of all queues or of some: those under way first."""
        return await self._answers.get(
            ("flows", limit, after, queues),
            lambda: read_flows(self._app, limit=limit, after=after, queues=queues),
        )

    async def members(self, flow: Job, *, most: int | None = None) -> Members:
        """Return where the jobs of a flow are; that changes seldom, and takes long to read."""
        return await self._answers.get(
            ("members", flow.id, most),
            lambda: members_of(self._app, flow, most=most),
            seconds=_MEMBERS_SECONDS,
            lasts=True,
        )

    async def flow(self, flow_id: UUID) -> FlowView:
        """Return one flow."""
        return await self._answers.get(("flow", flow_id), lambda: view_of(self._app.store, flow_id))

    async def doctor(self) -> Report:
        """Return what `windlass doctor` finds."""

        async def read() -> Report:
            report = Report(app=self._app.home)
            examine_settings(self._app, report)
            await examine_store(self._app, report)
            return report

        return await self._answers.get("doctor", read, seconds=_DOCTOR_SECONDS, lasts=True)
