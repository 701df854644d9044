"""Owns the schema: which one is there, which one is wanted, and the way from one to the other."""

from __future__ import annotations

import re
from typing import Any

import psycopg
from psycopg import AsyncConnection, sql

from windlass.core.errors import ConfigError, SchemaMismatch
from windlass.release import __version__
from windlass.store.postgres.rows import ENDED, LIVE
from windlass.store.protocol import Schema
from windlass.store.sql import Migration, load_migrations, load_statements

MIGRATIONS = load_migrations("windlass.store.postgres")
WANTED = MIGRATIONS[-1].number
_OLDEST = re.compile(r"^-- .*: oldest (\d+)\.$", re.MULTILINE)
_SEARCH_PATH = re.compile(r'^SET LOCAL search_path = "(\w+)", pg_catalog;$', re.MULTILINE)
_LOCK = 1_463_898_692
_LOCK_TIMEOUT = "10s"
_LONGEST_NAME = 40


class Names:
    """The name of a schema, and everything that is called after it."""

    def __init__(self, schema: str) -> None:
        if not re.fullmatch(rf"[A-Za-z_][A-Za-z0-9_]{{0,{_LONGEST_NAME - 1}}}", schema):
            raise ConfigError(
                f"{schema!r} is no name for a schema: write letters, digits and underscores, "
                f"at most {_LONGEST_NAME}"
            )
        if schema == "public" or schema.startswith("pg_") or schema == "information_schema":
            raise ConfigError(
                f"schema {schema!r} is not for jobs alone: give them one of their own"
            )
        self.schema = schema
        self.channel = f"{schema}_jobs"
        self.quoted = sql.Identifier(schema).as_string()

    def fill(self, text: str) -> str:
        """Put the names into the text of a statement or a migration."""
        return (
            text.replace("{schema}", self.quoted)
            .replace("{channel}", f"'{self.channel}'")
            .replace("{literal}", f"'{self.schema}'")
            .replace("{live}", LIVE)
            .replace("{ended}", ENDED)
        )

    def statements(self) -> dict[str, str]:
        """Return the store's statements for this schema."""
        loaded = load_statements("windlass.store.postgres")
        return {name: self.fill(text) for name, text in loaded.items()}


async def look(connection: AsyncConnection[Any], names: Names) -> Schema:
    """Say which schema there is."""
    found = await _found(connection, names)
    if found is None:
        return Schema(found=None, wanted=WANTED)
    return Schema(found=found[0], wanted=WANTED, oldest=found[1])


async def check(connection: AsyncConnection[Any], names: Names, location: str) -> None:
    """Refuse to work on a schema that does not fit this release.

    Raises:
        SchemaMismatch: there is none, it is too old, or too new.
    """
    found = await _found(connection, names)
    if found is None:
        raise SchemaMismatch(f"{location} is not there yet; run: windlass migrate")
    number, oldest, oldest_release = found
    if number < WANTED:
        raise SchemaMismatch(
            f"{location} has schema {number}, and Windlass {__version__} needs {WANTED}; "
            "run: windlass migrate"
        )
    if oldest > WANTED:
        raise SchemaMismatch(
            f"{location} has schema {number}, which serves Windlass {oldest_release} and newer, "
            f"and this is {__version__}; upgrade windlass here"
        )


async def steps(connection: AsyncConnection[Any], names: Names, location: str) -> list[Migration]:
    """Return the migrations that are still to be applied, with all names filled in.

    Raises:
        SchemaMismatch: the schema is newer than this release.
    """
    found = await _found(connection, names)
    number = 0 if found is None else found[0]
    if number > WANTED:
        raise SchemaMismatch(
            f"{location} has schema {number}, and Windlass {__version__} knows {WANTED}; "
            "upgrade windlass here"
        )
    return [
        Migration(step.number, step.name, names.fill(_preamble(step.number) + step.sql))
        for step in MIGRATIONS
        if step.number > number
    ]


async def migrate(connection: AsyncConnection[Any], names: Names, location: str) -> list[str]:
    """Apply what is missing, all or nothing, under a lock that keeps others from doing the same."""
    async with connection.transaction():
        await connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
        await connection.execute(
            "SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (_LOCK, names.schema)
        )
        missing = await steps(connection, names, location)
        if missing and missing[0].number == 1:
            await _refuse_if_used(connection, names)
        for step in missing:
            await connection.execute(step.sql.encode())
            await connection.execute(
                names.fill(_RECORD),
                (step.number, step.name, oldest_of(step), __version__, __version__),
            )
    return [f"{step.number:04}_{step.name}" for step in missing]


async def _refuse_if_used(connection: AsyncConnection[Any], names: Names) -> None:
    """Refuse a schema that holds something else: what we revoke there is not ours to revoke."""
    statements = names.statements()
    cursor = await connection.execute(statements["schema_is_used"], {"schema": names.schema})
    row = await cursor.fetchone()
    if row is not None and row[0]:
        raise ConfigError(
            f"schema {names.schema} holds other things already: say --schema with another name"
        )


def script(step: Migration) -> str:
    """Return a migration as a script for psql: as careful as `migrate`, and recorded like there."""
    schema = _SEARCH_PATH.search(step.sql)
    if schema is None:
        raise ValueError(f"migration {step.number} does not say which schema it is for")
    names = Names(schema[1])
    values = (step.number, step.name, oldest_of(step), __version__, __version__)
    shown = ", ".join(str(v) if isinstance(v, int) else f"'{v}'" for v in values)
    insert = names.fill(_RECORD).replace("%s, %s, %s, %s, %s", shown)
    return f"BEGIN;\n{_guard(step.number, names)}\n{step.sql.strip()}\n\n{insert};\nCOMMIT;\n"


def _guard(number: int, names: Names) -> str:
    """Return what keeps a script from waiting for long, and from any schema but the one before.

    A psql that was not told to stop at an error goes on with the next step.
    """
    if number == 1:
        _, _, used = names.statements()["schema_is_used"].partition("\n")
        wrong = "({})".format(used.replace("%(schema)s", "{literal}"))
        problem = "holds other things already"
    else:
        wrong = f"{_LAST} IS DISTINCT FROM {number - 1}"
        problem = f"is not at step {number - 1}"
    return names.fill(f"""\
SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}';
DO $$ BEGIN
    PERFORM pg_advisory_xact_lock({_LOCK}, hashtext({{literal}}));
    IF {wrong} THEN
        RAISE EXCEPTION 'schema {names.schema} {problem}'
            USING HINT = 'print the script anew, or say --schema with another name';
    END IF;
END $$;
""")


_LAST = "(SELECT max(number) FROM {schema}.migrations)"


def oldest_of(step: Migration) -> int:
    """Return from which schema on a release may go on working after a migration."""
    match = _OLDEST.search(step.sql)
    if match is None:
        raise ValueError(f"migration {step.number} does not say which releases it serves")
    return int(match[1])


_RECORD = (
    "INSERT INTO {schema}.migrations (number, name, oldest, oldest_release, release) "
    "SELECT number, name, oldest, coalesce((SELECT release FROM {schema}.migrations AS m "
    "WHERE m.number = new.oldest), oldest_release), release "
    "FROM (VALUES (%s, %s, %s, %s, %s)) AS new (number, name, oldest, oldest_release, release)"
)


def _preamble(number: int) -> str:
    make = _FIRST if number == 1 else ""
    return f"{make}SET LOCAL search_path = {{schema}}, pg_catalog;\n\n"


_FIRST = """\
DO $$ BEGIN
    -- Whoever was given the schema need not be allowed to make one.
    IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = {literal}) THEN
        CREATE SCHEMA {schema};
    END IF;
END $$;
COMMENT ON SCHEMA {schema} IS 'Windlass: background jobs.';
CREATE TABLE {schema}.migrations (
    number          integer     NOT NULL PRIMARY KEY,
    name            text        NOT NULL,
    oldest          integer     NOT NULL,
    oldest_release  text        NOT NULL,
    release         text        NOT NULL,
    applied_at      timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE  {schema}.migrations IS 'The steps that made this schema.';
COMMENT ON COLUMN {schema}.migrations.number IS 'The number of the schema after this step.';
COMMENT ON COLUMN {schema}.migrations.name IS 'What the step is about.';
COMMENT ON COLUMN {schema}.migrations.oldest IS
    'The oldest schema whose releases may go on working after this step.';
COMMENT ON COLUMN {schema}.migrations.oldest_release IS 'The oldest release that may.';
COMMENT ON COLUMN {schema}.migrations.release IS 'The release that applied the step.';
COMMENT ON COLUMN {schema}.migrations.applied_at IS 'When it was applied.';
"""


async def _found(connection: AsyncConnection[Any], names: Names) -> tuple[int, int, str] | None:
    statements = names.statements()
    cursor = await connection.execute(statements["schema_exists"], (names.schema,))
    row = await cursor.fetchone()
    if row is None or not row[0]:
        return None
    try:
        cursor = await connection.execute(statements["schema_number"])
        found: tuple[int, int, str] | None = await cursor.fetchone()
    except psycopg.errors.InsufficientPrivilege as error:
        raise SchemaMismatch(
            f"schema {names.schema} is there, but this role may not use it; "
            "docs/postgresql.md tells what to grant"
        ) from error
    return found
