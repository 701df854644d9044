"""The hot statements walk their indexes, whatever is finished or waits."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.store.sqlite.jobs_in_a_file import LANE, claim, new, steps
from windlass.core.jobs.ids import job_id
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import State
from windlass.store.sql_files import load_statements
from windlass.store.sqlite import SqliteStore

STATEMENTS = load_statements("windlass.store.sqlite")


@pytest.fixture
def filled(store: SqliteStore, path: Path) -> Iterator[sqlite3.Connection]:
    """A connection to a file with some jobs in every state, and no statistics."""

    async def fill() -> None:
        await store.enqueue([new(n + 1) for n in range(30)])
        taken = await claim(store, 20)
        outcomes = [State.COMPLETED, State.DEAD, State.SCHEDULED]
        await store.settle(
            [
                Transition(id=job.id, token=7, state=state, due=timedelta(hours=1))
                for job, state in zip(taken, outcomes * 5, strict=False)
            ]
        )
        await store.close()

    asyncio.run(fill())
    db = sqlite3.connect(path, isolation_level=None)
    yield db
    db.close()


PINNED: dict[str, tuple[str, ...]] = {
    "sweep_heads": ("jobs_lanes",),
    "sweep_heads_of_queues": ("jobs_lanes",),
    "next_due": ("jobs_due",),
    "oldest_of_lane": ("jobs_lanes",),
    "claim_jobs": ("INTEGER PRIMARY KEY",),
    "claimed_jobs": ("INTEGER PRIMARY KEY",),
    "free_unique_keys_on_claim": ("INTEGER PRIMARY KEY",),
    "complete_alike": ("sqlite_autoindex_jobs_1",),
    "complete_jobs": ("sqlite_autoindex_jobs_1",),
    "settle_job": ("sqlite_autoindex_jobs_1",),
    "record_progress": ("sqlite_autoindex_jobs_1",),
    "promote_jobs": ("jobs_due", "INTEGER PRIMARY KEY"),
    "recall_pending": ("key=? AND due_at>?", "INTEGER PRIMARY KEY"),
    "rescue_is_due": ("jobs_held",),
    "orphaned_jobs": ("jobs_held",),
    "take_over_job": ("sqlite_autoindex_jobs_1",),
    "cancel_requests": ("jobs_held",),
    "prune_is_due": ("jobs_finished",),
    "prune_jobs": ("jobs_finished", "INTEGER PRIMARY KEY"),
    "get_job": ("sqlite_autoindex_jobs_1",),
    "free_unique_keys": ("sqlite_autoindex_jobs_1",),
}


@pytest.mark.parametrize("analysed", [False, True], ids=["fresh", "analysed"])
@pytest.mark.parametrize("name", PINNED)
def test_the_plan_of_a_hot_statement_walks_its_index_and_never_the_table(
    filled: sqlite3.Connection, name: str, analysed: bool
) -> None:
    if analysed:
        filled.execute("ANALYZE")
    plan = plan_of(filled, name)
    for index in PINNED[name]:
        assert any(index in step for step in plan), plan
    scans = [step for step in plan if re.match(r"SCAN jobs(?! USING (COVERING )?INDEX)", step)]
    assert scans == [], plan


def plan_of(db: sqlite3.Connection, name: str) -> list[str]:
    sql = STATEMENTS[name]
    named = set(re.findall(r":(\w+)", sql))
    values: Any = dict.fromkeys(named, 1)
    if not named:
        numbered = set(re.findall(r"\?(\d+)", sql))
        values = (1,) * (len(numbered) or re.sub(r"--.*", "", sql).count("?"))
    return [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", values)]


def test_the_claim_and_the_sweep_need_no_sorting(filled: sqlite3.Connection) -> None:
    names = ("sweep_heads", "sweep_heads_of_queues", "next_due", "oldest_of_lane", "promote_jobs")
    for name in names:
        assert [step for step in plan_of(filled, name) if "TEMP B-TREE" in step] == [], name


def test_the_cost_of_the_hot_path_does_not_grow_with_what_is_finished_or_waits(
    store: SqliteStore, path: Path
) -> None:
    """Case 47, counted in steps of the machine below: what grows with the queue would show."""

    async def fill(first: int, count: int) -> None:
        await store.enqueue([new(first + n) for n in range(count)])

    asyncio.run(fill(1, 200))
    db = sqlite3.connect(path, isolation_level=None)

    def take(db: sqlite3.Connection) -> None:
        values = {**LANE._asdict(), "count": 10, "worker": "w", "token": 1, "now": 5}
        (values["seqs"],) = db.execute(STATEMENTS["oldest_of_lane"], values).fetchone()
        assert db.execute(STATEMENTS["claim_jobs"], values).rowcount == 10
        assert len(db.execute(STATEMENTS["claimed_jobs"], (values["seqs"], 1)).fetchall()) == 10

    def look(db: sqlite3.Connection) -> None:
        assert len(db.execute(STATEMENTS["sweep_heads"]).fetchall()) == 1
        db.execute(STATEMENTS["next_due"]).fetchone()

    def rescue(db: sqlite3.Connection) -> None:
        db.execute(STATEMENTS["rescue_is_due"], {"now": 5}).fetchone()
        db.execute(STATEMENTS["orphaned_jobs"], (100,)).fetchall()

    def promote(db: sqlite3.Connection) -> None:
        db.execute(STATEMENTS["promote_jobs"], (5, 1000))

    def recall(db: sqlite3.Connection) -> None:
        values = {"begin": 2**62, "ahead": 2**62}  # As at the start of a worker.
        assert db.execute(STATEMENTS["recall_pending"], values).rowcount == 0

    def settle(db: sqlite3.Connection) -> None:
        db.execute(STATEMENTS["free_unique_keys"], (f'["{job_id(1, 1)}"]',))

    def prune(db: sqlite3.Connection) -> None:
        horizons = {"finished": 0, "dead": None, "streams": 0, "workers": 0, "now": 0}
        assert db.execute(STATEMENTS["prune_is_due"], horizons).fetchone() == (0,)
        db.execute(STATEMENTS["prune_jobs"], ("completed", 0, 1000))

    work = (take, look, rescue, promote, recall, settle, prune)
    before = [steps(db, each) for each in work]
    db.execute(
        """INSERT INTO jobs (id, kind, queue, priority, key, state, payload, due_at, created_at,
                             finished_at, attempt)
           WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
           SELECT printf('old-%d', i), 'work', 'default', 0, '',
                  CASE i % 3 WHEN 0 THEN 'completed' WHEN 1 THEN 'dead' ELSE 'cancelled' END,
                  '{}', i, i, i, 1 FROM n"""
    )
    asyncio.run(fill(10_000, 2_000))
    after = [steps(db, each) for each in work]
    db.close()
    grown = {
        each.__name__: (was, now)
        for each, was, now in zip(work, before, after, strict=True)
        if now > was * 1.2 + 20
    }
    assert grown == {}
