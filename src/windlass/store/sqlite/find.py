"""Owns how jobs are found: in the order of their ids, slice by slice if there is a budget."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from windlass.core.jobs.queries import JobFilter, Page, id_range
from windlass.core.search.scan import Budget, Scan
from windlass.store.json_columns import as_json
from windlass.store.search_terms import conditions
from windlass.store.sql_files import load_statements, oldest_jobs_first
from windlass.store.sqlite.queries import sql
from windlass.store.sqlite.repair import readable
from windlass.store.sqlite.rows import micros

_terms = load_statements("windlass.store.sqlite", "terms.sql")


def find(
    db: sqlite3.Connection,
    which: JobFilter,
    now: datetime,
    *,
    limit: int,
    after: UUID | None,
    oldest_first: bool,
    brief: bool,
    budget: Budget | None,
) -> Page:
    """Return a page of the jobs that match a filter."""
    terms, bound = conditions(_terms, which.terms, as_json)
    listing = sql["find_jobs"].replace("{terms}", terms)
    edges = sql["find_edge"]
    if oldest_first:
        listing, edges = oldest_jobs_first(listing), oldest_jobs_first(edges)
    values = _values(which, now) | bound | {"brief": brief}
    ids = id_range(which, after, oldest_first=oldest_first)
    scan = Scan(ids, limit=limit, budget=budget, oldest_first=oldest_first, now=time.monotonic())
    while not scan.is_over:
        here = {"first": str(scan.first), "last": str(scan.last), "limit": scan.wanted}
        edge = None if scan.rows is None else _edge(db, edges, here | {"rows": scan.rows})
        here |= {} if edge is None else {"last" if oldest_first else "first": str(edge)}
        rows = db.execute(listing, values | here)
        jobs = [job for row in rows for job in readable([row]) or ()]
        scan.add(jobs, edge, looked_at=scan.rows or 0, now=time.monotonic())
    return scan.page()


def _edge(db: sqlite3.Connection, statement: str, values: Mapping[str, Any]) -> UUID | None:
    row = db.execute(statement, values).fetchone()
    return None if row is None else UUID(row[0])


def _values(which: JobFilter, now: datetime) -> dict[str, Any]:
    older, newer = which.older_than, which.newer_than
    since, before = which.created_since, which.created_before
    return {
        "ending": which.ending,
        "states": as_json(which.states) if which.states else None,
        "kind": which.kind,
        "queue": which.queue,
        "worker": which.worker,
        "key": which.key,
        "fingerprint": which.fingerprint,
        "error": which.error,
        "older_than": None if older is None else micros(now - older),
        "newer_than": None if newer is None else micros(now - newer),
        "created_since": None if since is None else micros(since),
        "created_before": None if before is None else micros(before),
    }
