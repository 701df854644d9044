"""Owns what a page reads for a person whose access is limited to some queues.

It has the methods of `Reads`, on the same shared answers of the store, and leaves out what belongs
to other queues, or may: keys, and the errors that breakers and kinds record for all of their
queues together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import datetime
from functools import cached_property, partial
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from windlass.app.app import Windlass
from windlass.app.control.why import Why
from windlass.app.doctor.report import Report
from windlass.app.snapshot import Snapshot
from windlass.app.workflows.flow_view import FlowView
from windlass.core.audit import AuditEntry, AuditPage
from windlass.core.deploys import DeployMark
from windlass.core.jobs.bulk import RECORD as BULK
from windlass.core.jobs.bulk import BulkOperation
from windlass.core.jobs.job import Job
from windlass.core.jobs.queries import (
    ErrorGroup,
    ErrorGroups,
    Page,
    Where,
    term_of_queues,
)
from windlass.core.policies.breaker_record import BreakerStatus
from windlass.core.policies.limit import queue_limit
from windlass.core.policies.limit_usage import LimitState
from windlass.core.policies.pauses import Pauses
from windlass.core.schedules.status import ScheduleStatus
from windlass.core.stats.error_stats import MOST as MOST_ERRORS
from windlass.core.stats.kind_history import RECORD as KINDS
from windlass.core.stats.kind_history import read_stats
from windlass.core.stats.queue_stats import serves_queue
from windlass.core.stats.stats import Stats, stats_of
from windlass.core.workers import WorkerRecord
from windlass.web.access.own_jobs import find_job, queues_of, sees_flow
from windlass.web.access.queue_access import check_whole, is_within
from windlass.web.access.roles import Access
from windlass.web.live.flow_reads import FlowsPage, looked_back_to
from windlass.web.live.reads import MAX_GROUPS, Reads

MAX_DEAD_READ = 500
"""Number of dead jobs of which errors are made: the store groups them for all queues together."""
_MAX_AUDIT_PAGES = 10
"""Pages of the audit log that are read for one with an entry that the person may see."""
_MAX_MEMBERS_READ = 200
"""Jobs of a flow in a list that are read for their queues; of the others, the handlers decide."""


class LimitedReads:
    """Reads of one request, by a person who sees some queues."""

    def __init__(self, app: Windlass, reads: Reads, access: Access) -> None:
        self._app = app
        self._reads = reads
        self._access = access
        self._queues = access.queues or ()

    # -- figures -------------------------------------------------------------------------------

    async def snapshot(self) -> Snapshot:
        whole = await self._reads.snapshot()
        stats = await self.stats()
        kinds = await self._kinds()
        pauses = Pauses(
            queues=whole.pauses.queues & set(self._queues), kinds=whole.pauses.kinds & kinds
        )
        return Snapshot(stats=stats, pauses=pauses, location=whole.location)

    async def stats(
        self, *, queue: str | None = None, kind: str | None = None, most_errors: int = MOST_ERRORS
    ) -> Stats:
        """Return the figures of the person's queues, or of one of them, or of a kind."""
        groups = await self.groups(kind, limit=most_errors)
        facts = replace(
            await self._reads.facts(), groups=groups, groups_searched_to=groups.searched_to
        )
        stats = stats_of(facts, queue=queue, kind=kind, among=self._queues, most_errors=most_errors)
        names = {each.name for each in await self.breakers()}
        return replace(
            stats,
            breakers=tuple(each for each in stats.breakers if each in names),
            half_open=tuple(each for each in stats.half_open if each in names),
        )

    async def _kinds(self) -> set[str]:
        """Return the kinds that the person knows: of their queues, by jobs or by the handler."""
        facts = await self._reads.facts()
        left = {
            name.removeprefix(KINDS)
            for name, each in facts.kinds.items()
            if not self._own.isdisjoint(read_stats(each).left)
        }
        waiting = {lane.kind for lane in facts.waiting if lane.queue in self._own}
        return left | waiting | set(self.registered_kinds())

    def registered_kinds(self) -> Sequence[str]:
        """Return the kinds of this app whose jobs go to the person's queues by default."""
        registry = self._app.registry
        return [kind for kind in registry if registry[kind].queue in self._own]

    @cached_property
    def _own(self) -> frozenset[str]:
        return frozenset(self._queues)

    # -- jobs ----------------------------------------------------------------------------------

    async def jobs(self, where: Where | None, *, limit: int, after: UUID | None) -> Page:
        """Return a page of a listing, whose conditions were narrowed to the person's queues."""
        return await self._reads.jobs(where, limit=limit, after=after)

    async def why(self, job_id: UUID) -> Why:
        return await self._app.control.awhy(job_id, queues=self._queues)

    async def find_job(self, given: str, *, kind: str | None = None) -> Job:
        return await find_job(self._app, self._access, given, kind=kind, read=self._reads.members)

    async def flows(self, limit: int, *, after: UUID | None = None) -> FlowsPage:
        if not self._queues:
            return FlowsPage()
        page = await self._reads.flows(limit, after=after, queues=self._queues)
        read = partial(self._reads.members, most=_MAX_MEMBERS_READ)
        views = [
            each
            for each in page.views
            if await sees_flow(self._app, self._access, each.job, read=read)
        ]
        return dataclasses.replace(page, views=tuple(views))

    async def flow(self, flow_id: UUID) -> FlowView:
        """Return one flow, which `find_job` has found."""
        return await self._reads.flow(flow_id)

    async def groups(self, kind: str | None = None, *, limit: int = MAX_GROUPS) -> ErrorGroups:
        """Return the errors of the newest dead jobs of the person's queues."""
        if not self._queues or "\0" in (kind or ""):
            return ErrorGroups()
        where: Where = {"search": str(term_of_queues(self._queues)), "states": ["dead"]}
        if kind is not None:
            where["kind"] = kind
        page = await self._reads.jobs(where, limit=MAX_DEAD_READ, after=None)
        found: dict[tuple[str, str], list[Job]] = {}
        for job in page.jobs:
            fingerprint = "" if job.error is None else job.error.fingerprint
            found.setdefault((job.kind, fingerprint), []).append(job)
        groups = sorted(map(_group, found.values()), key=lambda each: -each.count)
        oldest = looked_back_to(page)
        if oldest is None and page.after is not None and page.jobs:
            oldest = page.jobs[-1].created_at
        return ErrorGroups(groups=tuple(groups[:limit]), searched_to=oldest)

    # -- everything else -----------------------------------------------------------------------

    async def workers(self) -> list[WorkerRecord]:
        kinds = await self._kinds()
        return [
            self._worker(each, kinds)
            for each in await self._reads.workers()
            if any(serves_queue(each, queue, draining=True) for queue in self._queues)
        ]

    def _worker(self, record: WorkerRecord, kinds: set[str]) -> WorkerRecord:
        info = record.info
        shown = replace(
            info,
            queues=tuple(each for each in info.queues if each in self._own),
            excluded=tuple(each for each in info.excluded if each in self._own),
            queue_slots={
                name: each for name, each in info.queue_slots.items() if name in self._own
            },
            kinds=tuple(each for each in info.kinds if each in kinds),
            pools={},
            limits={},
            uses={},
            retries={},
        )
        return replace(record, info=shown)

    async def limits(self) -> list[LimitState]:
        kinds, registry = await self._kinds(), self._app.registry
        names = {queue_limit(each) for each in self._queues}
        names |= {name for kind in kinds for name, _ in registry.limited_by(kind, "")}
        for worker in await self._reads.workers():
            names |= {name for kind in kinds for name in worker.info.uses.get(kind, ())}
        return [
            replace(each, holders={}, kinds=tuple(kind for kind in each.kinds if kind in kinds))
            for each in await self._reads.limits()
            if each.name in names
        ]

    async def breakers(self) -> list[BreakerStatus]:
        kinds = await self._kinds()
        found = await self._reads.breakers()
        return [
            # Its history quotes errors, of which nothing says from which queue they are.
            replace(each, kinds=tuple(kind for kind in each.kinds if kind in kinds), history=())
            for each in found
            if not kinds.isdisjoint(each.kinds)
        ]

    async def schedules(self) -> list[ScheduleStatus]:
        found = await self._reads.schedules()
        return [each for each in found if each.record.schedule.job.queue in self._own]

    async def bulks(self) -> list[BulkOperation]:
        found = await self._reads.bulks()
        return [each for each in found if is_within(each.which, self._access)]

    async def deploys(self) -> list[DeployMark]:
        return await self._reads.deploys()

    async def audit(self, **given: Any) -> AuditPage:
        """Return a page of the audit log, shorter by the entries about what the person must not
        see, or may not: those about jobs that are no longer kept, and about several queues.

        If nothing is left of it, the next ones are read, some of them.
        """
        page = await self._seen_of(await self._reads.audit(**given))
        for _ in range(_MAX_AUDIT_PAGES - 1):
            if page.entries or page.after is None or page.searched_to is not None:
                break
            page = await self._seen_of(await self._reads.audit(**given | {"after": page.after}))
        return page

    async def _seen_of(self, page: AuditPage) -> AuditPage:
        jobs = {job for each in page.entries for job in each.jobs}
        jobs |= {each for entry in page.entries if (each := _job_in(entry)) is not None}
        queues = await queues_of(self._app, jobs)
        operations = {f"{BULK}{each.id}" for each in await self.bulks()}
        seen = tuple(each for each in page.entries if self._is_seen(each, queues, operations))
        return replace(page, entries=seen)

    def _is_seen(self, entry: AuditEntry, queues: dict[UUID, str], operations: set[str]) -> bool:
        what, _, name = entry.subject.partition(":")
        match what:
            case "queue":
                return name in self._own
            case "bulk":
                return entry.subject in operations
            case "job":
                named = {*entry.jobs, *filter(None, [_job_in(entry)])}
                return bool(named) and all(queues.get(each) in self._own for each in named)
        return False

    async def doctor(self) -> Report:
        check_whole(self._access, "the store")
        return await self._reads.doctor()


def _job_in(entry: AuditEntry) -> UUID | None:
    what, _, name = entry.subject.partition(":")
    try:
        return UUID(name) if what == "job" else None
    except ValueError:
        return None


def _group(jobs: list[Job]) -> ErrorGroup:
    """Make a group of dead jobs of one kind and error, the newest first."""
    times: list[datetime] = [each.finished_at or each.created_at for each in jobs]
    newest = max(jobs, key=lambda each: each.finished_at or each.created_at)
    return ErrorGroup(
        fingerprint="" if newest.error is None else newest.error.fingerprint,
        kind=newest.kind,
        count=len(jobs),
        first_seen=min(times),
        last_seen=max(times),
        newest=newest.id,
        error=newest.error,
        reason=newest.reason,
    )
