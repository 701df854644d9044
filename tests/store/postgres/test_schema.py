"""The schema: how it is made, what it says about itself, who may do what with it, and who may not
work on it.
"""

from __future__ import annotations

import asyncio
import re
import threading
from datetime import timedelta
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
from typer.testing import CliRunner

from tests.store.postgres.schema_access import HOUR, connected, new, take
from tests.support.clocked_stores import opened
from tests.support.database_roles import MAY_ENQUEUE, role
from windlass.cli.root_command import cli
from windlass.core.errors import ConfigError, SchemaMismatch, StoreError, StoreUnavailable
from windlass.core.jobs.job import Enqueued, UniqueKey
from windlass.core.jobs.queries import Retention
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import State
from windlass.store.postgres import PostgresStore
from windlass.store.postgres import migrate as schema
from windlass.store.postgres import store as store_module
from windlass.store.sql_files import Migration, load_statements

STATEMENTS = load_statements("windlass.store.postgres", "sql/statements.sql")
STEPS = [*schema.MIGRATIONS, schema.functions_step()]
NAMES = [f"{step.number:04}_{step.name}" for step in STEPS]


# -- migrations --------------------------------------------------------------------------------


def test_a_migration_is_done_once(postgres_url: str) -> None:
    async def main() -> None:
        async with opened(postgres_url) as store:
            assert (await store.schema()).found is None
            assert await store.migrate() == NAMES
            assert (await store.schema()).found == schema.WANTED
            await store.enqueue([new()])
            assert await store.migrate() == []
            assert len(await take(store)) == 1

    asyncio.run(main())


def test_concurrent_migrations_migrate_once_and_all_succeed(postgres_url: str) -> None:
    gate = threading.Barrier(4)
    done: list[list[str]] = []

    def migrate() -> None:
        async def main() -> None:
            async with opened(postgres_url) as store:
                await store.schema()
                gate.wait(60)
                done.append(await store.migrate())

        asyncio.run(main())

    threads = [threading.Thread(target=migrate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(done) == [[], [], [], NAMES]


def test_a_migration_that_cannot_get_the_lock_gives_up_with_an_error(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "_LOCK_TIMEOUT", "50ms")

    async def main() -> None:
        async with opened(postgres_url) as store:
            with pytest.raises(StoreUnavailable, match="lock timeout"):
                await store.migrate()
            db.rollback()
            assert await store.migrate() == NAMES

    with psycopg.connect(postgres_url) as db:
        db.execute("CREATE SCHEMA windlass")
        asyncio.run(main())


def test_a_migration_that_fails_changes_nothing(
    migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "-- Serves all: oldest 1.\nCREATE TABLE half (n int);\nINSERT INTO nowhere VALUES (1);"
    broken = Migration(schema.WANTED + 1, "broken", words)
    monkeypatch.setattr(schema, "MIGRATIONS", [*schema.MIGRATIONS, broken])
    monkeypatch.setattr(schema, "WANTED", broken.number)

    async def main() -> None:
        async with opened(migrated_url) as store:
            with pytest.raises((StoreError, SchemaMismatch)):
                await store.migrate()
            assert (await store.schema()).found == schema.WANTED - 1

    asyncio.run(main())
    with connected(migrated_url) as db:
        assert db.execute("SELECT to_regclass('windlass.half')").fetchone() == (None,)


def test_migrations_are_numbered_without_a_gap_and_say_whom_they_serve() -> None:
    assert [each.number for each in schema.MIGRATIONS] == list(range(1, schema.WANTED + 1))
    for step in schema.MIGRATIONS:
        assert 1 <= schema.oldest_of(step) <= step.number
    serving = [schema.oldest_of(step) for step in schema.MIGRATIONS]
    assert serving == sorted(serving), "whom an earlier step left behind, no later one serves"


def run_windlass(*args: str) -> str:
    result = CliRunner().invoke(cli, list(args))
    assert result.exit_code == 0, (result.stdout, result.stderr)
    return result.stdout


@pytest.mark.parametrize("name", ["windlass", "Shop_1"])
def test_the_script_of_a_dry_run_can_be_run_by_itself(postgres_url: str, name: str) -> None:
    migrate = ("migrate", "--url", postgres_url, "--schema", name)
    printed = run_windlass(*migrate, "--dry-run")

    async def look() -> tuple[int | None, list[str]]:
        async with opened(postgres_url, schema=name) as store:
            found = (await store.schema()).found
            if found is not None:
                await store.open()
            return found, [step.name for step in await store.migrations()]

    assert asyncio.run(look()) == (None, [step.name for step in STEPS])
    with connected(postgres_url) as db:
        # As psql would: everything at once, and nothing bound.
        db.execute(printed.encode())
    assert asyncio.run(look()) == (schema.WANTED, [])
    assert run_windlass(*migrate, "--dry-run") == "-- nothing to migrate\n"
    assert "is up to date" in run_windlass(*migrate)


DIGEST = """
SELECT 'column', table_name, column_name, data_type, column_default, is_nullable
FROM information_schema.columns WHERE table_schema = 'windlass'
UNION ALL SELECT 'index', tablename, indexname, indexdef, '', ''
FROM pg_indexes WHERE schemaname = 'windlass'
UNION ALL SELECT 'function', proname, pg_get_functiondef(oid), proacl::text, '', ''
FROM pg_proc WHERE pronamespace = 'windlass'::regnamespace
UNION ALL SELECT 'migration', name, number::text, oldest_release, release, functions
FROM windlass.migrations ORDER BY 1, 2, 3
"""


def test_the_printed_script_makes_the_same_schema_as_migrate(
    postgres_url: str, migrated_url: str
) -> None:
    printed = run_windlass("migrate", "--url", postgres_url, "--dry-run")
    with connected(postgres_url) as by_hand, connected(migrated_url) as by_us:
        by_hand.execute(printed.encode())
        assert by_hand.execute(DIGEST).fetchall() == by_us.execute(DIGEST).fetchall()


# -- names -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["", "1st", "a-b", 'a"b', "a b", "a.b", "a;--", "schön", "x" * 41, "a\n"]
)
def test_an_odd_name_for_a_schema_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="a schema name must have"):
        PostgresStore("postgresql://nowhere/none", schema=name)


@pytest.mark.parametrize("name", ["Shop", "select", "_1", "x" * 40])
def test_everything_works_in_a_schema_of_another_name(postgres_url: str, name: str) -> None:
    async def main() -> None:
        async with opened(postgres_url, schema=name) as store:
            assert await store.migrate() == NAMES
            await store.open()
            await store.enqueue([new(), new(unique=UniqueKey(key="k"))])
            await store.enqueue([new() for _ in range(30)])
            await asyncio.to_thread(store.enqueue_blocking, [new()], HOUR)
            sweep = await store.sweep()
            waiting = asyncio.create_task(store.wait(sweep.mark, HOUR))
            jobs = await take(store, 1_000)
            assert len(jobs) == 33
            moves = [Transition(id=job.id, token=7, state=State.COMPLETED) for job in jobs[:20]]
            moves += [Transition(id=job.id, token=7, state=State.DEAD) for job in jobs[20:30]]
            moves += [Transition(id=job.id, token=7, state=State.PENDING) for job in jobs[30:]]
            assert all(await store.settle(moves))
            await asyncio.wait_for(waiting, 60)
            await store.promote(10)
            await store.prune(Retention(finished=timedelta(0), dead=timedelta(0)), 1_000)
            assert [(each.state, each.count) for each in await store.counts()] == [
                (State.PENDING, 3)
            ]

    asyncio.run(main())
    with connected(postgres_url) as db:
        assert db.execute("SELECT to_regnamespace('windlass')").fetchone() == (None,)


def test_two_schemas_of_one_database_know_nothing_of_each_other(postgres_url: str) -> None:
    async def main() -> None:
        async with opened(postgres_url, schema="one") as one, opened(postgres_url) as two:
            await one.migrate()
            assert (await two.schema()).found is None
            with pytest.raises(SchemaMismatch, match="windlass migrate"):
                await two.open()
            await two.migrate()
            await one.enqueue([new()])
            assert (await two.sweep()).heads == ()
            assert len((await one.sweep()).heads) == 1

    asyncio.run(main())


# -- what the schema says about itself ---------------------------------------------------------

UNCOMMENTED = """
SELECT 'relation ' || relname FROM pg_class
WHERE relnamespace = 'windlass'::regnamespace AND relkind IN ('r', 'p', 'v')
  AND obj_description(oid, 'pg_class') IS NULL
UNION ALL
SELECT 'index ' || c.relname FROM pg_class c JOIN pg_index i ON i.indexrelid = c.oid
WHERE relnamespace = 'windlass'::regnamespace AND NOT relispartition
  AND NOT indisunique AND obj_description(c.oid, 'pg_class') IS NULL
UNION ALL
SELECT 'column ' || relname || '.' || attname
FROM pg_class c JOIN pg_attribute a ON attrelid = c.oid
WHERE relnamespace = 'windlass'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
  AND attnum > 0 AND NOT attisdropped AND col_description(c.oid, attnum) IS NULL
UNION ALL
SELECT 'function ' || proname FROM pg_proc
WHERE pronamespace = 'windlass'::regnamespace AND obj_description(oid, 'pg_proc') IS NULL
UNION ALL
SELECT 'schema ' || nspname FROM pg_namespace
WHERE nspname = 'windlass' AND obj_description(oid, 'pg_namespace') IS NULL
"""


def test_every_table_column_index_view_and_function_has_a_comment(migrated_url: str) -> None:
    with connected(migrated_url) as db:
        assert db.execute(UNCOMMENTED).fetchall() == []


def test_every_function_for_others_pins_its_search_path_and_is_for_nobody_by_default(
    migrated_url: str,
) -> None:
    with connected(migrated_url) as db:
        pinned = """
            SELECT proname FROM pg_proc WHERE pronamespace = 'windlass'::regnamespace
            AND (prosecdef OR prolang = (SELECT oid FROM pg_language WHERE lanname = 'plpgsql'))
            AND NOT coalesce(proconfig::text LIKE '%search_path=%pg_temp%', false)"""
        assert db.execute(pinned).fetchall() == []
        public = """
            SELECT proname FROM pg_proc, aclexplode(coalesce(proacl, acldefault('f', proowner)))
            WHERE pronamespace = 'windlass'::regnamespace AND grantee = 0"""
        assert db.execute(public).fetchall() == []


# -- the statements ----------------------------------------------------------------------------


def test_every_named_statement_is_used_and_every_used_name_exists() -> None:
    package = Path(store_module.__file__).parent
    source = "".join(each.read_text() for each in sorted(package.rglob("*.py")))
    by_index, by_name = r'(?:sql|statements)\["(\w+)"\]', r'self\._(?:\w+_rows|run)\("(\w+)"'
    named = set(re.findall(by_index, source)) | set(re.findall(by_name, source))
    named |= set(re.findall(r'for statement in \("(\w+)", "(\w+)"', source)[0])
    assert named == set(STATEMENTS)


def test_every_statement_says_what_it_is_for() -> None:
    assert [name for name, sql in STATEMENTS.items() if not sql.startswith("-- ")] == []


# -- roles -------------------------------------------------------------------------------------


def test_a_producer_may_enqueue_in_every_way_and_do_nothing_else(migrated_url: str) -> None:
    answers: list[Enqueued] = []
    jobs = [new() for _ in range(60)]
    with role(migrated_url, MAY_ENQUEUE) as url:

        async def main() -> None:
            async with opened(url) as store:
                await store.open()
                answers.extend(await store.enqueue([new()]))
                answers.extend(await store.enqueue([new(due=HOUR, unique=UniqueKey(key="k"))]))
                # COPY is refused, and the function takes its place; then for good.
                answers.extend(await store.enqueue(jobs))
                answers.extend(await store.enqueue([new() for _ in range(60)]))
                await store.enqueue(jobs)
                bulk = [new() for _ in range(60)]
                answers.extend(await asyncio.to_thread(store.enqueue_blocking, bulk, HOUR))
                for refused in (store.sweep(), store.get(jobs[0].id), store.promote(1)):
                    with pytest.raises(StoreError, match="lists the grants"):
                        await refused
                with pytest.raises(StoreError, match="lists the grants"):
                    await take(store)

        asyncio.run(main())
        with connected(url) as db:
            db.execute("""SELECT windlass.enqueue('{"kind": "work"}')""")
            for statement in FORBIDDEN:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    db.execute(statement)
    with connected(migrated_url) as db:
        count = db.execute("SELECT count(*) FROM windlass.job_queue").fetchone()
    assert len(answers) == 182
    assert count == (183,)


FORBIDDEN: tuple[LiteralString, ...] = (
    "SELECT id FROM windlass.jobs",
    "SELECT id FROM windlass.job_queue",
    "SELECT id FROM windlass.finished_jobs",
    "INSERT INTO windlass.jobs (id, kind, payload) VALUES (gen_random_uuid(), 'work', '{}')",
    "UPDATE windlass.jobs SET priority = 9",
    "DELETE FROM windlass.jobs",
    "TRUNCATE windlass.jobs",
    "SELECT windlass.prune('0', '0', '0', '0', 10)",
    "SELECT windlass.promote(1)",
    "SELECT windlass.wake('{}', '{}')",
    "SELECT windlass.complete('{}', '{}', NULL)",
    "SELECT windlass.note_done('{}', now())",
    "SELECT FROM windlass.amend(gen_random_uuid(), 'push', '', '{}', '', '{}', now(), now())",
    "SELECT windlass.hold_unique_key('k', gen_random_uuid(), false, NULL)",
    "CREATE TABLE windlass.mine (n int)",
    "DELETE FROM windlass.migrations",
)


def test_the_error_for_a_role_without_grants_names_them(migrated_url: str) -> None:
    async def main(url: str) -> None:
        async with opened(url) as store:
            with pytest.raises((StoreError, SchemaMismatch), match="lists the grants"):
                await store.open()

    with role(migrated_url) as url:
        asyncio.run(main(url))


def test_functions_in_a_producers_temporary_schema_are_not_called(migrated_url: str) -> None:
    """Prevents: who may enqueue gives our functions, which have more rights, tables of its own."""
    with role(migrated_url, MAY_ENQUEUE) as url, connected(url) as db:
        db.execute("CREATE TEMPORARY TABLE jobs (LIKE pg_class)")
        db.execute("CREATE TEMPORARY TABLE sleepers (id text)")
        db.execute("SET search_path = pg_temp, public")
        db.execute("""SELECT windlass.enqueue('{"kind": "work"}')""")
    with connected(migrated_url) as db:
        assert db.execute("SELECT count(*) FROM windlass.jobs").fetchone() == (1,)
