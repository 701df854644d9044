"""Owns which jobs a person sees: those of their queues; others do not exist for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import UUID

from windlass.app.app import Windlass
from windlass.core.errors import FlowInvalid, UnknownJob
from windlass.core.jobs.ids import read_id
from windlass.core.jobs.job import Job
from windlass.core.workflows.flow_graph import FLOW_KIND, ids_of
from windlass.web.access.roles import Access
from windlass.worker.services.flow_advancer import chart_in

_CHUNK = 1_000


@dataclass(frozen=True, kw_only=True)
class Members:
    """The jobs of a flow, by what decides who sees it."""

    queues: frozenset[str]
    """The queues of those that were read."""
    kinds: frozenset[str]
    """The kinds of all, and of the jobs that would undo them."""
    are_known: bool
    """Whether all of them were read, and are still kept."""


ReadMembers = Callable[[Job], Awaitable[Members]]


async def find_job(
    app: Windlass,
    access: Access,
    given: str,
    *,
    kind: str | None = None,
    read: ReadMembers | None = None,
) -> Job:
    """Return the job with an id, or with the beginning of one, if the person may see it.

    `read` finds the jobs of a flow; None: they are read from the store.

    Raises:
        ValueError: it cannot be the beginning of an id.
        UnknownJob: there is none, or it is of another queue, or of a flow with others.
        AmbiguousId: several jobs that the person sees have such an id.
    """
    first, last = read_id(given)
    if access.queues == () and first != last:
        raise UnknownJob(given)
    job_id = await app.jobs.ajob_id(given, kind=kind, queues=access.queues)
    job = await app.store.get(job_id)
    if job is None or not access.sees(job.queue):
        raise UnknownJob(job_id)
    if job.kind == FLOW_KIND and not await sees_flow(app, access, job, read=read):
        raise UnknownJob(job_id)
    return job


async def sees_flow(
    app: Windlass, access: Access, job: Job, *, read: ReadMembers | None = None
) -> bool:
    """Return whether a flow has jobs of a person's queues only, by its own job.

    Of a job that was not read, or is no longer kept, the queue is that of its kind's handler.
    """
    if access.queues is None:
        return True
    if not access.sees(job.queue):
        return False
    try:
        members = await (members_of(app, job) if read is None else read(job))
    except FlowInvalid:
        return True
    if not all(map(access.sees, members.queues)):
        return False
    return members.are_known or _handlers_are_own(app, access, members.kinds)


async def members_of(app: Windlass, job: Job, *, most: int | None = None) -> Members:
    """Return the queues and kinds of a flow's jobs, which its graph names; at most `most` are read.

    Raises:
        FlowInvalid: its graph cannot be read.
    """
    chart = chart_in(job.payload)
    last = chart.total if most is None else min(chart.total, most)
    queues: set[str] = set()
    kept = 0
    for start in range(1, last + 1, _CHUNK):
        ids = list(ids_of(job.id, range(start, min(start + _CHUNK, last + 1))))
        known = await app.store.get_many(ids)
        kept += len(known)
        queues.update(each.queue for each in known.values())
    stages = (*chart.jobs, *chart.last)
    return Members(
        queues=frozenset(queues),
        kinds=frozenset(kind for each in stages for kind in (each.kind, each.undo_kind) if kind),
        are_known=kept == chart.total,
    )


async def queues_of(app: Windlass, jobs: set[UUID]) -> dict[UUID, str]:
    """Return the queues of those jobs that are still kept."""
    known = await app.store.get_many(sorted(jobs)) if jobs else {}
    return {each.id: each.queue for each in known.values()}


def _handlers_are_own(app: Windlass, access: Access, kinds: frozenset[str]) -> bool:
    return all(kind in app.registry and access.sees(app.registry[kind].queue) for kind in kinds)
