"""The schema in the file: migrated once, all or nothing, and refused if it is newer."""

from __future__ import annotations

import asyncio
import re
import shutil
import sqlite3
import threading
from pathlib import Path

import pytest

from tests.store.sqlite.jobs_in_a_file import new
from windlass.core.errors import SchemaMismatch, StoreError
from windlass.core.jobs.queries import JobFilter
from windlass.store.sql_files import Migration, load_statements
from windlass.store.sqlite import SqliteStore
from windlass.store.sqlite.connections import file

STATEMENTS = load_statements("windlass.store.sqlite")


# -- the schema ------------------------------------------------------------------------------


def test_a_schema_that_is_newer_than_this_release_is_refused(
    store: SqliteStore, path: Path
) -> None:
    """Case 19. Prevents a release from working on a schema that it does not understand."""
    asyncio.run(store.enqueue([new(1)]))
    asyncio.run(store.close())
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {file.SCHEMA + 1}")
    db.close()
    with pytest.raises(SchemaMismatch, match="upgrade windlass here"):
        asyncio.run(store.open())
    with pytest.raises(SchemaMismatch):
        asyncio.run(store.migrate())
    assert file.schema_at(path) == file.SCHEMA + 1, "a refused file is left as it is"


def test_a_migration_is_done_once(store: SqliteStore, path: Path) -> None:
    assert file.schema_at(path) is None
    steps = asyncio.run(store.migrate())
    assert steps == [f"{each.number:04}_{each.name}" for each in file.MIGRATIONS]
    asyncio.run(store.enqueue([new(1)]))
    assert asyncio.run(store.migrate()) == []
    assert file.schema_at(path) == file.SCHEMA
    assert len(asyncio.run(store.find(JobFilter(), limit=10)).jobs) == 1


def test_migrations_are_numbered_without_a_gap() -> None:
    assert [each.number for each in file.MIGRATIONS] == list(range(1, file.SCHEMA + 1))


def test_concurrent_opens_of_a_new_file_migrate_it_once(path: Path) -> None:
    stores = [SqliteStore(path) for _ in range(8)]
    gate = threading.Barrier(8)
    done: list[list[str]] = []

    def migrate(store: SqliteStore) -> None:
        gate.wait(60)
        done.append(asyncio.run(store.migrate()))

    threads = [threading.Thread(target=migrate, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(len(each) for each in done) == [0] * 7 + [len(file.MIGRATIONS)]


def test_a_migration_that_fails_changes_nothing(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(store.enqueue([new(1)]))
    asyncio.run(store.close())
    broken = Migration(
        file.SCHEMA + 1, "broken", "CREATE TABLE half (x);\nINSERT INTO nowhere VALUES (1);"
    )
    with monkeypatch.context() as patch:
        patch.setattr(file, "MIGRATIONS", [*file.MIGRATIONS, broken])
        patch.setattr(file, "SCHEMA", broken.number)
        with pytest.raises(StoreError, match="nowhere"):
            asyncio.run(store.migrate())
    db = sqlite3.connect(path)
    assert db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'half'").fetchone() == (0,)
    db.close()
    assert file.schema_at(path) == file.SCHEMA
    assert len(asyncio.run(store.find(JobFilter(), limit=10)).jobs) == 1


def test_a_copy_of_the_file_is_a_store_of_its_own(store: SqliteStore, path: Path) -> None:
    asyncio.run(store.enqueue([new(1)]))
    asyncio.run(store.close())
    copied = path.with_name("copy.db")
    shutil.copy(path, copied)
    other = SqliteStore(copied)
    asyncio.run(other.enqueue([new(2)]))
    assert len(asyncio.run(other.find(JobFilter(), limit=10)).jobs) == 2
    assert len(asyncio.run(store.find(JobFilter(), limit=10)).jobs) == 1
    asyncio.run(other.close())


# -- the statements and their plans ----------------------------------------------------------


def test_every_named_statement_is_used_and_every_used_name_exists() -> None:
    package = Path(file.__file__).parents[1]
    source = "".join(each.read_text() for each in sorted(package.rglob("*.py")))
    used = set(re.findall(r'(?:sql\[|holds\(db, )"(\w+)"', source))
    assert used == set(STATEMENTS)


def test_every_statement_says_what_it_is_for() -> None:
    assert [name for name, sql in STATEMENTS.items() if not sql.startswith("-- ")] == []
