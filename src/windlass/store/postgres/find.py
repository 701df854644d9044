"""Owns how jobs are found: in the order of their ids, slice by slice if there is a budget."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

from windlass.core.jobs.queries import JobFilter, Page, id_range
from windlass.core.jobs.states import FINISHED, LIVE, State
from windlass.core.search.scan import Budget, Scan
from windlass.store.postgres.records import Cursor, Statements, fetch
from windlass.store.postgres.rows import briefly, job_of
from windlass.store.search_terms import conditions
from windlass.store.sql_files import load_statements, oldest_jobs_first

TERMS = load_statements("windlass.store.postgres", "sql/terms.sql")


async def find(
    cursor: Cursor,
    sql: Statements,
    which: JobFilter,
    limit: int,
    after: UUID | None,
    oldest_first: bool,
    brief: bool,
    budget: Budget | None,
) -> Page:
    """Return a page of the jobs that match a filter.

    A slice is bounded by rows, not by a timeout of the server: then it is known how far it came.
    """
    terms, bound = conditions(TERMS, which.terms, list)
    listing = (sql["find"] if budget is None else sql["find_slice"]).replace("{terms}", terms)
    listing = briefly(listing) if brief else listing
    edges = sql["find_edge"]
    if oldest_first:
        listing, edges = oldest_jobs_first(listing), oldest_jobs_first(edges)
    values = find_values(which) | bound
    ids = id_range(which, after, oldest_first=oldest_first)
    scan = Scan(ids, limit=limit, budget=budget, oldest_first=oldest_first, now=time.monotonic())
    while not scan.is_over:
        here = values | {"first": scan.first, "last": scan.last, "limit": scan.wanted}
        edge = None
        if scan.rows is not None:
            here |= {"rows": scan.rows, "before_edge": scan.rows - 1}
            edge = next((row[0] for row in await fetch(cursor, edges, here)), None)
            here |= {} if edge is None else {"last" if oldest_first else "first": edge}
        jobs = [job_of(row) for row in await fetch(cursor, listing, here)]
        scan.add(jobs, edge, looked_at=scan.rows or 0, now=time.monotonic())
    return scan.page()


def find_values(which: JobFilter) -> dict[str, Any]:
    """Return the values of a filter, without its range of ids and its terms."""
    states = frozenset(which.states or State)
    return {
        "ending": which.ending,
        "states": [state.value for state in which.states] or None,
        "in_live": not states.isdisjoint(LIVE),
        "in_dead": State.DEAD in states,
        "in_finished": not states.isdisjoint(FINISHED - {State.DEAD}),
        "kind": which.kind,
        "queue": which.queue,
        "key": which.key,
        "worker": which.worker,
        "fingerprint": which.fingerprint,
        "error": which.error,
        "older_than": which.older_than,
        "newer_than": which.newer_than,
        "created_since": which.created_since,
        "created_before": which.created_before,
    }
