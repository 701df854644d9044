"""What `windlass doctor` finds at a PostgreSQL server: snapshots, bloat, notifications."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import LiteralString

import psycopg
import pytest

from tests.store.clocked import opened
from windlass.core.job import Finding
from windlass.store.postgres import health
from windlass.store.postgres.work import Cursor

FILL: LiteralString = """
INSERT INTO windlass.jobs (id, kind, payload)
SELECT gen_random_uuid(), 'work', '{}' FROM generate_series(1, 3000)
"""


def bloat(url: str, *, old: timedelta) -> list[Finding]:
    async def main() -> list[Finding]:
        async with opened(url) as store:

            async def look(cursor: Cursor) -> list[Finding]:
                return await health.bloat(cursor, store._sql, dead_rows=2000, old=old)

            return await store._look(look)

    return asyncio.run(main())


def run(url: str, *statements: LiteralString) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        for each in statements:
            db.execute(each)
        db.execute("SELECT pg_stat_force_next_flush()")


def test_a_table_of_dead_rows_is_told_until_it_is_vacuumed(migrated_url: str) -> None:
    run(migrated_url, "ALTER TABLE windlass.jobs SET (autovacuum_enabled = off)", FILL)
    assert bloat(migrated_url, old=timedelta(0)) == [], "they live"
    run(migrated_url, "DELETE FROM windlass.jobs")
    (found,) = bloat(migrated_url, old=timedelta(0))
    assert "table windlass.jobs has 3,000 dead rows and 0 live ones" in found.problem
    assert "never vacuumed" in found.problem
    assert "turn autovacuum on" in found.remedy
    assert bloat(migrated_url, old=timedelta(days=999)) == [], "its vacuum is not late yet"
    run(migrated_url, FILL)
    assert bloat(migrated_url, old=timedelta(0)) == [], "half of them live"
    run(migrated_url, "VACUUM windlass.jobs")
    assert bloat(migrated_url, old=timedelta(0)) == []


def test_a_transaction_that_was_held_open_for_long_is_told_with_its_holder(
    migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def findings() -> list[Finding]:
        async with opened(migrated_url) as store:
            return await store.findings()

    with psycopg.connect(migrated_url, application_name="report") as db:
        db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        db.execute("SELECT count(*) FROM windlass.jobs")
        assert asyncio.run(findings()) == []
        monkeypatch.setattr(health, "OLD", timedelta(0))
        told = [each for each in asyncio.run(findings()) if "(report)" in each.problem]
        pid = db.info.backend_pid
        assert [each.remedy for each in told] == [f"end it, or: SELECT pg_terminate_backend({pid})"]
