"""To find jobs by a range of ids, or in some states, is to walk no more than that."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from uuid import UUID

import psycopg
import pytest

from tests.support.query_plans import Watch
from windlass.core.jobs.job import Job
from windlass.core.jobs.queries import JobFilter, Page, filter_of, id_range
from windlass.core.jobs.states import State
from windlass.core.search.scan import Budget
from windlass.store.postgres import PostgresStore
from windlass.store.postgres.find import TERMS, find_values
from windlass.store.postgres.migrate import Names
from windlass.store.search_terms import conditions
from windlass.store.sql_files import oldest_jobs_first

ROWS = 5_000
FEW = 100
"""The planner itself looks at the ends of each index, of which the finished jobs have 32."""
ENDED = """
INSERT INTO windlass.{room} (seq, id, kind, state, payload, due_at, finished_at{more})
SELECT n, ('{digit}0000000' || lpad(to_hex(n), 24, '0'))::uuid, 'kind', '{state}', '{{}}', now(),
       now(){values}
FROM generate_series(1, %s) AS n
"""
LIVE = """
INSERT INTO windlass.jobs (id, kind, state, payload, due_at)
SELECT ('20000000' || lpad(to_hex(n), 24, '0'))::uuid, 'kind', 'pending', '{}', now()
FROM generate_series(1, %s) AS n
"""


@pytest.fixture
def full_url(migrated_url: str) -> str:
    """A database with many jobs in every room."""
    dead = ENDED.format(room="dead_jobs", digit=1, state="dead", more="", values="")
    slot = ", (n %% 32)::smallint"
    done = ENDED.format(
        room="finished_jobs", digit=3, state="completed", more=", slot", values=slot
    )
    with psycopg.connect(migrated_url) as db:
        for statement in (LIVE, dead, done):
            db.execute(statement.encode(), [ROWS])
        db.execute("ANALYZE")
    return migrated_url


def _found(url: str, which: JobFilter) -> tuple[Job, ...]:
    async def look() -> tuple[Job, ...]:
        store = PostgresStore(url)
        try:
            return (await store.find(which, limit=10)).jobs
        finally:
            await store.close()

    return asyncio.run(look())


def _seen(url: str, which: JobFilter) -> dict[str, int]:
    """Return how many rows each table or index gave for a look, by the statement as it is sent."""
    statement = Names("windlass").statements()["find"].replace("{terms}", "")
    first, last = id_range(which, None)
    values = find_values(which) | {"first": first, "last": last, "limit": 11}
    with psycopg.connect(url, autocommit=True) as db:
        return dict(Watch(db).call(statement, values).touched)


@pytest.mark.parametrize("digit", [1, 2, 3])
def test_the_beginning_of_an_id_is_found_by_the_index_of_every_room(
    full_url: str, digit: int
) -> None:
    first = UUID(f"{digit}0000000-0000-0000-0000-000000000800")
    which = JobFilter(first=first, last=UUID(int=first.int + 3))
    assert len(_found(full_url, which)) == 4
    assert sum(_seen(full_url, which).values()) <= FEW


def test_a_room_without_a_job_in_these_states_is_not_entered(full_url: str) -> None:
    which = JobFilter(states=(State.SCHEDULED,), kind="kind")
    assert _found(full_url, which) == ()
    assert sum(_seen(full_url, which).values()) <= ROWS + FEW
    dead = JobFilter(states=(State.DEAD,), kind="none")
    assert sum(_seen(full_url, dead).values()) <= ROWS + FEW


SLICE = 300
SEARCHES = (
    "kind:none state:pending queue:default",
    "payload.a:1",
    "tag:vip -kind:none",
    '"timed out" state:dead',
    "worker:none state:completed",
)


@pytest.mark.parametrize("search", SEARCHES)
def test_a_slice_of_a_search_touches_no_more_rows_than_it_has(full_url: str, search: str) -> None:
    """Prevents: an index on something else by which the planner reads, and sorts, all jobs."""
    which = filter_of({"search": search}, datetime(2026, 1, 1, tzinfo=UTC))
    terms, bound = conditions(TERMS, which.terms, list)
    statements = Names("windlass").statements()
    first, last = id_range(which, None)
    values = find_values(which) | bound | {"first": first, "last": last}
    values |= {"rows": SLICE, "before_edge": SLICE - 1, "limit": 11}
    for name in ("find_edge", "find_slice"):
        statement = statements[name].replace("{terms}", terms)
        for order in (statement, oldest_jobs_first(statement)):
            with psycopg.connect(full_url, autocommit=True) as db:
                touched = Watch(db).call(order, values).touched
            assert sum(touched.values()) <= 3 * SLICE + FEW, (name, touched)


def test_a_budget_bounds_a_search_over_all_tables(full_url: str) -> None:
    async def look() -> list[Page]:
        store = PostgresStore(full_url)
        pages: list[Page] = []
        try:
            while not pages or pages[-1].after is not None:
                after = pages[-1].after if pages else None
                budget = Budget(rows=ROWS // 2, seconds=60)
                which = JobFilter(kind="none")
                pages.append(await store.find(which, limit=10, after=after, budget=budget))
        finally:
            await store.close()
        return pages

    pages = asyncio.run(look())
    assert len(pages) in (6, 7), "three tables, each in two halves"
    assert all(page.searched_to is not None for page in pages[:-1])


BOUND = 300


@pytest.mark.parametrize("name", ["error_groups", "last_grouped", "count_finished", "depths"])
def test_figures_touch_no_more_rows_than_their_bound(full_url: str, name: str) -> None:
    """Prevents: a page that takes longer the more jobs have ended."""
    statements = Names("windlass").statements()
    values = {"most": BOUND, "limit": 10, "kind": None, "queues": 10}
    with psycopg.connect(full_url) as db:
        db.execute(statements["by_index_only"].encode(), {"timeout": "0"})
        touched = Watch(db).call(statements[name], values).touched
    assert sum(touched.values()) <= 4 * BOUND + FEW, touched


def test_a_job_dies_of_an_error_that_postgresql_cannot_read(migrated_url: str) -> None:
    """Prevents: a fingerprint that is read by the INSERT, so that its job cannot die."""
    error = '{"type": "E", "message": "\\u0000", "fingerprint": "f1"}'
    with psycopg.connect(migrated_url, autocommit=True) as db:
        db.execute(LIVE.encode(), [1])
        db.execute("UPDATE windlass.jobs SET error = %s", [error])
        db.execute(
            "DO $$ DECLARE job windlass.jobs; BEGIN SELECT * INTO job FROM windlass.jobs;"
            " job.state := 'dead'; PERFORM windlass.finish(job, now(), NULL); END $$"
        )
        assert db.execute("SELECT fingerprint FROM windlass.dead_jobs").fetchall() == [("",)]
