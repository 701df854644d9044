"""Owns how jobs that meet conditions are looked up in a store: a page of them, or all their ids."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from msgspec.structs import replace

from windlass.core.jobs.ids import ending_of, first_id, read_id
from windlass.core.jobs.queries import JobFilter, Page, Where, filter_of, needs_clock
from windlass.core.search.parser import parse
from windlass.core.search.scan import Budget
from windlass.store import StoreQueries

CHUNK = 500
"""How many jobs are found, or moved, in one transaction."""
BOUNDED = Budget()
"""The budget of a search that is safe in a web request."""
_RECENT = timedelta(days=1)


async def find_page(
    store: StoreQueries,
    where: Where,
    *,
    limit: int,
    after: UUID | None,
    budget: Budget | None,
    brief: bool = False,
) -> Page:
    """Return a page of jobs that meet conditions; a search for an id goes straight to its job."""
    which = filter_of(where, await store_now(store, where))
    lone_id = parse(where.get("search") or "").job_id
    if lone_id is not None and after is None:
        page = await with_id(store, replace(which, terms=()), lone_id, limit=limit, brief=brief)
        if page.jobs:
            return page
    return await store.find(which, limit=limit, after=after, budget=budget, brief=brief)


async def with_id(
    store: StoreQueries, which: JobFilter, text: str, *, limit: int, brief: bool = False
) -> Page:
    """Return jobs whose ids begin with a text; if none does, those of a day that end with it."""
    first, last = read_id(text)
    page = await store.find(replace(which, first=first, last=last), limit=limit, brief=brief)
    if not page.jobs and (ending := ending_of(text)) is not None:
        # No index covers the ends of ids, so only those of a day are read.
        since = first_id(datetime.now(UTC) - _RECENT)
        recent = replace(which, first=since, ending=ending)
        return await store.find(recent, limit=limit, brief=brief)
    return page


async def store_now(store: StoreQueries, where: Where) -> datetime | None:
    """Return the store's time, if conditions depend on it."""
    return (await store.sweep()).now if needs_clock(where) else None


async def search(store: StoreQueries, which: JobFilter, limit: int | None = None) -> list[UUID]:
    """Return the ids of all jobs that match a filter, the oldest first."""
    found: list[UUID] = []
    after: UUID | None = None
    while limit is None or len(found) < limit:
        room = CHUNK if limit is None else min(CHUNK, limit - len(found))
        page = await store.find(
            which, limit=room, after=after, oldest_first=True, brief=True, budget=BOUNDED
        )
        found += [job.id for job in page.jobs]
        after = page.after
        if after is None:
            break
    return found
