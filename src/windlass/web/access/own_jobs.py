"""Owns which jobs a person sees: those of their queues; others do not exist for them."""

from __future__ import annotations

from uuid import UUID

from windlass.app.app import Windlass
from windlass.core.errors import FlowInvalid, UnknownJob
from windlass.core.jobs.ids import read_id
from windlass.core.jobs.job import Job
from windlass.core.workflows.flow_graph import FLOW_KIND, Chart, ids_of
from windlass.web.access.roles import Access
from windlass.worker.services.flow_advancer import chart_in

_CHUNK = 1_000


async def find_job(app: Windlass, access: Access, given: str, *, kind: str | None = None) -> Job:
    """Return the job with an id, or with the beginning of one, if the person may see it.

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
    if job.kind == FLOW_KIND and not await sees_flow(app, access, job):
        raise UnknownJob(job_id)
    return job


async def sees_flow(app: Windlass, access: Access, job: Job, *, most: int | None = None) -> bool:
    """Return whether a flow has jobs of a person's queues only, by its own job.

    Its graph names all of its jobs. Of one that is no longer kept, the queue is that of its kind's
    handler. Flows of more than `most` jobs are not looked at, and seen.
    """
    if access.queues is None:
        return True
    try:
        chart = chart_in(job.payload)
    except FlowInvalid:
        return access.sees(job.queue)
    if not access.sees(job.queue):
        return False
    if most is not None and chart.total > most:
        return True
    for start in range(1, chart.total + 1, _CHUNK):
        numbers = range(start, min(start + _CHUNK, chart.total + 1))
        ids = list(ids_of(job.id, numbers))
        known = await app.store.get_many(ids)
        if not all(access.sees(each.queue) for each in known.values()):
            return False
        if len(known) < len(ids) and not _handlers_are_own(app, access, chart):
            return False
    return True


async def queues_of(app: Windlass, jobs: set[UUID]) -> dict[UUID, str]:
    """Return the queues of those jobs that are still kept."""
    known = await app.store.get_many(sorted(jobs)) if jobs else {}
    return {each.id: each.queue for each in known.values()}


def _handlers_are_own(app: Windlass, access: Access, chart: Chart) -> bool:
    stages = (*chart.jobs, *chart.last)
    kinds = {kind for each in stages for kind in (each.kind, each.undo_kind) if kind}
    return all(kind in app.registry and access.sees(app.registry[kind].queue) for kind in kinds)
