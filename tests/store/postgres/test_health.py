"""What `windlass doctor` finds at a PostgreSQL server: snapshots, bloat, notifications."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, LiteralString

import psycopg
import pytest

from tests.support.clocked_stores import migrate, opened
from tests.support.database_roles import MAY_WORK, role
from tests.support.postgres.server import FAST, Server
from windlass.core.jobs.queries import Finding
from windlass.store.postgres import health
from windlass.store.postgres.records import Cursor

FILL: LiteralString = """
INSERT INTO windlass.jobs (id, kind, payload)
SELECT gen_random_uuid(), 'work', '{}' FROM generate_series(1, 3000)
"""


def bloat(url: str, *, old: timedelta) -> list[Finding]:
    async def main() -> list[Finding]:
        async with opened(url) as store:

            async def look(cursor: Cursor) -> list[Finding]:
                return await health.bloat(cursor, store.sql, dead_rows=2000, old=old)

            return await store._here().run(look)

    return asyncio.run(main())


def run(url: str, *statements: LiteralString) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        for each in statements:
            db.execute(each)
        db.execute("SELECT pg_stat_force_next_flush()")


def test_a_table_of_dead_rows_is_reported_until_it_is_vacuumed(migrated_url: str) -> None:
    run(migrated_url, "ALTER TABLE windlass.jobs SET (autovacuum_enabled = off)", FILL)
    assert bloat(migrated_url, old=timedelta(0)) == [], "they live"
    run(migrated_url, "DELETE FROM windlass.jobs")
    (found,) = bloat(migrated_url, old=timedelta(0))
    assert "table windlass.jobs has 3,000 dead rows and 0 live ones" in found.problem
    assert "has not been vacuumed since the server started" in found.problem
    assert "turn autovacuum on" in found.remedy
    assert bloat(migrated_url, old=timedelta(days=999)) == [], "its vacuum is not late yet"
    run(migrated_url, FILL)
    assert bloat(migrated_url, old=timedelta(0)) == [], "half of them live"
    run(migrated_url, "VACUUM windlass.jobs")
    assert bloat(migrated_url, old=timedelta(0)) == []


def test_a_long_open_transaction_is_reported_with_its_holder(
    migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(migrated_url, application_name="report") as db:
        db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        db.execute("SELECT count(*) FROM windlass.jobs")
        assert findings(migrated_url) == []
        monkeypatch.setattr(health, "MAX_AGE", timedelta(0))
        told = [each for each in findings(migrated_url) if "(report)" in each.problem]
        pid = db.info.backend_pid
        assert [each.remedy for each in told] == [f"end it, or: SELECT pg_terminate_backend({pid})"]


# -- for how long a snapshot has been held ---------------------------------------------------------

READS: LiteralString = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT 1"
WRITES: LiteralString = "CREATE TABLE written AS SELECT 1"
SLOW: tuple[LiteralString, ...] = (
    "CREATE TABLE large AS SELECT number, repeat('x', 900) FROM generate_series(1, 3000) AS number",
    "DELETE FROM large",
)
WASTE: LiteralString = """
DO $$ BEGIN FOR each IN 1..100100 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$
"""


def snapshot_age(url: str) -> float | None:
    async def main() -> float | None:
        async with opened(url) as store:
            return (await store.depths(10)).snapshot_age

    return asyncio.run(main())


def findings(url: str) -> list[Finding]:
    async def main() -> list[Finding]:
        async with opened(url) as store:
            return await store.findings()

    return asyncio.run(main())


@pytest.mark.parametrize("statement", [READS, WRITES])
def test_the_age_of_a_snapshot_is_that_of_the_oldest_transaction(
    migrated_url: str, statement: LiteralString
) -> None:
    """Who has written and idles holds up as much as who reads by an old snapshot."""
    assert snapshot_age(migrated_url) == 0
    with psycopg.connect(migrated_url) as db:
        db.execute(statement)
        time.sleep(0.2)
        assert 0.2 <= (snapshot_age(migrated_url) or 0) < 60
        db.rollback()
    assert snapshot_age(migrated_url) == 0


@contextmanager
def slow_vacuum(url: str) -> Iterator[int]:
    """Vacuum a table for as long as the test takes, and give the server's process that does so."""
    run(url, *SLOW)
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("SET vacuum_cost_delay = 100; SET vacuum_cost_limit = 1")

        def vacuum() -> None:
            with suppress(psycopg.errors.QueryCanceled):
                db.execute("VACUUM large")

        thread = threading.Thread(target=vacuum)
        thread.start()
        try:
            yield db.info.backend_pid
            assert thread.is_alive(), "the vacuum was over too soon"
        finally:
            db.cancel_safe()
            thread.join()


def test_a_vacuum_is_not_reported_as_a_held_snapshot(
    migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: an alarm for whoever cleans up, with the advice to terminate it."""
    monkeypatch.setattr(health, "MAX_AGE", timedelta(0))
    with slow_vacuum(migrated_url) as pid, psycopg.connect(migrated_url, autocommit=True) as db:
        _until_it_holds(db, pid)
        assert snapshot_age(migrated_url) == 0
        assert not [each for each in findings(migrated_url) if str(pid) in each.remedy]


def _until_it_holds(db: psycopg.Connection[Any], pid: int) -> None:
    deadline = time.monotonic() + 60
    while (
        db.execute(
            "SELECT 1 FROM pg_stat_activity JOIN pg_stat_progress_vacuum USING (pid)"
            " WHERE pid = %s AND backend_xmin IS NOT NULL",
            [pid],
        ).fetchone()
        is None
    ):
        assert time.monotonic() < deadline, "no vacuum with a snapshot"
        time.sleep(0.01)


def test_a_role_without_rights_reports_the_snapshot_age_as_unknown(
    migrated_url: str,
) -> None:
    """Prevents: a worker with no more rights than it needs that reports that all is well."""
    sees: LiteralString = "GRANT pg_read_all_stats TO {role}"
    with (
        role(migrated_url, MAY_WORK) as plain,
        role(migrated_url, (*MAY_WORK, sees)) as granted,
        psycopg.connect(migrated_url) as db,
    ):
        assert snapshot_age(plain) == 0
        db.execute(READS)
        assert snapshot_age(plain) is None
        assert (snapshot_age(granted) or 0) > 0


def test_a_prepared_transaction_counts_as_a_snapshot(migrated_url: str) -> None:
    with psycopg.connect(migrated_url) as db:
        db.execute("DELETE FROM windlass.workers")
        db.execute("PREPARE TRANSACTION 'forgotten'")
        db.autocommit = True
        try:
            time.sleep(0.2)
            assert 0.2 <= (snapshot_age(migrated_url) or 0) < 60
        finally:
            db.execute("ROLLBACK PREPARED 'forgotten'")
    assert snapshot_age(migrated_url) == 0


def test_a_slot_that_nobody_reads_counts_as_a_snapshot_once_it_keeps_much() -> None:
    with Server(settings={**FAST, "wal_level": "logical"}) as server:
        if server.version < 17:
            pytest.skip("before PostgreSQL 17, slots do not tell since when they are idle")
        url = server.create_database("shop")
        migrate(url)
        run(url, "SELECT pg_create_logical_replication_slot('idle', 'pgoutput')")
        assert snapshot_age(url) == 0, "it keeps little yet"
        run(url, "SET synchronous_commit = off", WASTE)
        assert (snapshot_age(url) or 0) > 0
        (found,) = findings(url)
        assert "the replication slot idle is not read" in found.problem
