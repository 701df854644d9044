"""Which releases a schema serves, and what is said to those that it does not."""

from __future__ import annotations

import asyncio
from typing import LiteralString

import pytest

from tests.store.postgres.schema_access import connected, new, take
from tests.support.clocked_stores import opened
from windlass.core.errors import SchemaMismatch
from windlass.store.postgres import migrate as schema

# -- releases that do not fit ------------------------------------------------------------------


def test_a_schema_that_is_too_old_for_this_release_is_refused(
    migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "WANTED", schema.WANTED + 1)

    async def main() -> None:
        async with opened(migrated_url) as store:
            with pytest.raises(SchemaMismatch, match=r"needs \d+; run: windlass migrate"):
                await store.open()

    asyncio.run(main())


NEWER: LiteralString = (
    "INSERT INTO windlass.migrations (number, name, oldest, oldest_release, release) "
    "VALUES (%s, 'newer', %s, '9.0.0', '9.1.0')"
)


def test_a_schema_that_no_longer_serves_this_release_is_refused(migrated_url: str) -> None:
    number = schema.WANTED + 1
    with connected(migrated_url) as db:
        db.execute(NEWER, [number, number])

    async def main() -> None:
        async with opened(migrated_url) as store:
            with pytest.raises(
                SchemaMismatch, match=r"supports Windlass 9\.0\.0 and newer"
            ) as told:
                await store.open()
            assert "upgrade windlass here" in str(told.value)
            with pytest.raises(SchemaMismatch, match="upgrade windlass here"):
                await store.migrate()
            with pytest.raises(SchemaMismatch, match="upgrade windlass here"):
                await store.migrations()

    asyncio.run(main())


def test_a_release_that_one_step_left_behind_is_not_served_by_the_next(migrated_url: str) -> None:
    """Prevents: a later step that says little about whom it serves lets an old release in again."""
    number = schema.WANTED + 1
    with connected(migrated_url) as db:
        db.execute(NEWER, [number, number])
        db.execute(NEWER, [number + 1, 1])

    async def main() -> None:
        async with opened(migrated_url) as store:
            with pytest.raises(SchemaMismatch, match=f"has schema {number + 1}, which supports"):
                await store.open()

    asyncio.run(main())


def test_a_newer_schema_that_still_serves_this_release_is_worked_on(migrated_url: str) -> None:
    with connected(migrated_url) as db:
        db.execute(NEWER, [schema.WANTED + 1, schema.WANTED])

    async def main() -> None:
        async with opened(migrated_url) as store:
            await store.open()
            await store.enqueue([new()])
            assert len(await take(store)) == 1

    asyncio.run(main())


def test_a_database_without_the_schema_is_reported_with_its_remedy(postgres_url: str) -> None:
    async def main() -> None:
        async with opened(postgres_url) as store:
            for attempt in (store.open(), store.enqueue([new()]), store.sweep(), take(store)):
                with pytest.raises(SchemaMismatch, match="run: windlass migrate"):
                    await attempt

    asyncio.run(main())
