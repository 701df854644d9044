"""Owns which flows a page lists: first those under way, however old, then the newest others."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from windlass.app.app import Windlass
from windlass.app.workflows.flow_view import FlowView, viewed
from windlass.core.errors import FlowInvalid
from windlass.core.jobs.ids import made_at
from windlass.core.jobs.job import FLOW, Job
from windlass.core.jobs.queries import JobFilter, Page, term_of_queues
from windlass.core.records import RecordPage
from windlass.core.search.scan import Budget
from windlass.core.workflows.flow_graph import FLOW_KIND

_BUDGET = Budget(rows=20_000)
"""Few jobs are flows, and no index has them: how many are looked at for the newest ones."""
_MAX_UNDER_WAY = 50


@dataclass(frozen=True, kw_only=True)
class FlowsPage:
    """A page of flows; `after` continues it, in the order of their creation."""

    views: tuple[FlowView, ...] = ()
    after: UUID | None = None
    """Where it continues; None: there are no more."""
    searched_to: datetime | None = None
    """How far back was looked for flows that ended; None: as far as the page says."""
    is_cut_off: bool = False
    """Whether more flows are under way than were looked at."""


async def read_flows(
    app: Windlass, *, limit: int, after: UUID | None, queues: tuple[str, ...] | None
) -> FlowsPage:
    """Return a page of flows whose own jobs are in these queues; None: in any."""
    terms = () if queues is None else (term_of_queues(queues),)
    which = JobFilter(kind=FLOW_KIND, terms=terms)
    page = await app.store.find(which, limit=limit, after=after, budget=_BUDGET)
    jobs, is_cut_off = {each.id: each for each in page.jobs}, False
    if after is None:
        under_way, is_cut_off = await _under_way(app)
        jobs |= {
            key: each for key, each in under_way.items() if queues is None or each.queue in queues
        }
    listed = sorted(jobs.values(), key=lambda each: each.id, reverse=True)
    if after is None:
        listed.sort(key=lambda each: each.finished_at is not None)
    views = []
    for each in listed:
        # What is no flow is left out.
        with suppress(FlowInvalid):
            views.append(await viewed(app.store, each))
    return FlowsPage(
        views=tuple(views),
        after=page.after,
        searched_to=looked_back_to(page),
        is_cut_off=is_cut_off,
    )


async def _under_way(app: Windlass) -> tuple[dict[UUID, Job], bool]:
    """Return flows by their records, which they have until they end; and whether there are more."""
    records = await app.store.records(FLOW, RecordPage(_MAX_UNDER_WAY + 1))
    ids = []
    for name in list(records)[:_MAX_UNDER_WAY]:
        with suppress(ValueError):
            ids.append(UUID(name.removeprefix(FLOW)))
    found = await app.store.get_many(ids)
    flows = {key: job for key, job in found.items() if job.kind == FLOW_KIND}
    return flows, len(records) > _MAX_UNDER_WAY


def looked_back_to(page: Page) -> datetime | None:
    """Return how far back a page looked, if that was not all."""
    return None if page.searched_to is None else made_at(page.searched_to)
