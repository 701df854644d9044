"""What the queries of the SQLite store promise while other connections write."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.store.sqlite.jobs_in_a_file import new
from windlass.store.sqlite import SqliteStore, queries


def test_a_sweep_misses_no_job_that_is_promoted_while_it_reads(
    store: SqliteStore, path: Path
) -> None:
    """Prevents: a burst worker ends while a retry that is due moves to its lane."""
    asyncio.run(store.enqueue([new(1, due=timedelta(microseconds=1))]))
    after = datetime.now(UTC) + timedelta(seconds=1)
    with closing(sqlite3.connect(path, factory=_PromotingConnection)) as db:
        db.store, db.reads = store, 0
        sweep = queries.sweep(db, 0, after)
    assert sweep is not None
    assert sweep.heads or (sweep.next_due and sweep.next_due <= after)


class _PromotingConnection(sqlite3.Connection):
    """Promotes the jobs that are due, by another connection, between its first two reads."""

    store: SqliteStore
    reads: int

    def execute(self, *args: Any) -> sqlite3.Cursor:
        self.reads += 1
        if self.reads == 2:
            asyncio.run(self.store.promote(10))
        return super().execute(*args)
