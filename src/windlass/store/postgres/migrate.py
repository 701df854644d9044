"""Owns the schema: the current one, the wanted one, and the migration between them.

Numbered migrations change tables, indexes and views, and are frozen once released. Functions have
one text each, in sql/functions, and are created again after the migrations, in the same
transaction:

- a release that changes a function has a new number, even if its migration is only a header;
- a function whose signature changes is dropped by that migration.
"""

from __future__ import annotations

import re
from hashlib import sha256
from importlib.resources import files
from typing import Any, NamedTuple

import psycopg
from psycopg import AsyncConnection, sql

from windlass.core.errors import ConfigError, SchemaMismatch
from windlass.store.postgres.rows import ENDED, FITS, LIVE
from windlass.store.protocol import Schema
from windlass.store.sql_files import Migration, load_migrations, load_statements
from windlass.version import __version__

_PACKAGE = "windlass.store.postgres"
MIGRATIONS = load_migrations(_PACKAGE, "sql/migrations")
WANTED = MIGRATIONS[-1].number
FUNCTIONS = {
    entry.name.removesuffix(".sql"): entry.read_text("utf-8")
    for entry in sorted(files(_PACKAGE).joinpath("sql/functions").iterdir(), key=lambda e: e.name)
}
_OLDEST = re.compile(r"^-- .*: oldest (\d+)\.$", re.MULTILINE)
# A lock that only the owner can take: any role that may log in can take an advisory lock.
_LOCK = "LOCK TABLE {schema}.migrations IN SHARE ROW EXCLUSIVE MODE"
_LAST_NUMBER = "(SELECT max(number) FROM {schema}.migrations)"
_RECORD = """\
INSERT INTO migrations (number, name, oldest, oldest_release, release)
VALUES ({number}, '{name}', {oldest}, coalesce(
    (SELECT release FROM migrations WHERE number = {oldest}), '{release}'), '{release}');
"""
_RECORD_FUNCTIONS = "UPDATE migrations SET functions = '{digest}' WHERE number = {number};\n"
_MADE_BY_ANOTHER = (
    psycopg.errors.UniqueViolation,
    psycopg.errors.DuplicateSchema,
    psycopg.errors.DuplicateTable,
)
_LOCK_TIMEOUT = "10s"
_MAX_NAME_LENGTH = 40


class Names:
    """The name of a schema, and the names derived from it."""

    def __init__(self, schema: str) -> None:
        if not re.fullmatch(rf"[A-Za-z_][A-Za-z0-9_]{{0,{_MAX_NAME_LENGTH - 1}}}", schema):
            raise ConfigError(
                f"a schema name must have at most {_MAX_NAME_LENGTH} letters, digits and "
                f"underscores, got {schema!r}"
            )
        if schema == "public" or schema.startswith("pg_") or schema == "information_schema":
            raise ConfigError(
                f"schema must be one used only for jobs, got {schema!r}; choose another"
            )
        self.schema = schema
        self.channel = f"{schema}_jobs"
        self.quoted = sql.Identifier(schema).as_string()

    def fill(self, text: str) -> str:
        """Fill the names into the text of a statement or a migration."""
        return (
            text.replace("{fits}", FITS)
            .replace("{schema}", self.quoted)
            .replace("{channel}", f"'{self.channel}'")
            .replace("{literal}", f"'{self.schema}'")
            .replace("{live}", LIVE)
            .replace("{ended}", ENDED)
        )

    def statements(self) -> dict[str, str]:
        loaded = load_statements(_PACKAGE, "sql/statements.sql")
        return {name: self.fill(text) for name, text in loaded.items()}


class _Found(NamedTuple):
    """The schema of a database, and the oldest one whose releases may work on it."""

    number: int
    oldest: int
    oldest_release: str
    functions: str

    @property
    def has_other_functions(self) -> bool:
        """Whether the functions are not those of this release, though the schema is."""
        return self.number == WANTED and self.functions != functions_digest()


async def look(connection: AsyncConnection[Any], names: Names) -> Schema:
    found = await _find(connection, names)
    if found is None:
        return Schema(found=None, wanted=WANTED)
    return Schema(found=found.number, wanted=WANTED, oldest=found.oldest)


async def check(connection: AsyncConnection[Any], names: Names, location: str) -> None:
    """Refuse to work on a schema that does not fit this release.

    Raises: SchemaMismatch: there is none, or it is too old or too new.
    """
    found = await _find(connection, names)
    if found is None:
        raise SchemaMismatch(f"{location} has no Windlass schema yet; run: windlass migrate")
    if found.number < WANTED:
        raise SchemaMismatch(
            f"{location} has schema {found.number}, and Windlass {__version__} needs {WANTED}; "
            "run: windlass migrate"
        )
    if found.oldest > WANTED:
        raise SchemaMismatch(
            f"{location} has schema {found.number}, which supports Windlass "
            f"{found.oldest_release} and newer, but this is {__version__}; upgrade windlass here"
        )
    if found.has_other_functions:
        raise SchemaMismatch(
            f"the functions in {location} are not those of Windlass {__version__}; "
            "run: windlass migrate"
        )


async def migrate(connection: AsyncConnection[Any], names: Names, location: str) -> list[str]:
    """Apply the missing steps, all or none, under a lock against concurrent migrations."""
    try:
        return await _migrate(connection, names, location)
    except _MADE_BY_ANOTHER:
        # Where there is no table to lock yet, the second of two waits for what the first creates.
        return await _migrate(connection, names, location)


async def _migrate(connection: AsyncConnection[Any], names: Names, location: str) -> list[str]:
    async with connection.transaction():
        await connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
        # Asked before the schema is looked up, since another process may create it in between.
        used = await _is_used(connection, names)
        found = await _find(connection, names)
        if found is None and used:
            raise ConfigError(
                f"schema {names.schema} already contains other objects; choose another with "
                "--schema"
            )
        if found is not None and _missing(found, location):
            await connection.execute(names.fill(_LOCK).encode())
            found = await _find(connection, names)
        missing = _missing(found, location)
        for step in missing:
            await connection.execute(names.fill(_body(step)).encode())
    return [f"{step.number:04}_{step.name}" for step in missing]


async def scripts(connection: AsyncConnection[Any], names: Names, location: str) -> list[Migration]:
    """Return the missing steps as scripts for psql.

    Raises: SchemaMismatch: the schema is newer than this release.
    """
    missing = _missing(await _find(connection, names), location)
    return [step._replace(sql=script(step, names)) for step in missing]


def script(step: Migration, names: Names) -> str:
    """Return a step as a script for psql, with the same checks and records as `migrate`."""
    return names.fill(f"BEGIN;\n{_guard(step, names)}\n{_body(step)}COMMIT;\n")


def functions_step() -> Migration:
    """Return the step that creates all functions, which follows every numbered one."""
    return Migration(WANTED, "functions", "\n".join(FUNCTIONS.values()))


def functions_digest() -> str:
    return sha256(functions_step().sql.encode()).hexdigest()


def oldest_of(step: Migration) -> int:
    """Return the oldest schema whose release may continue to work after a migration."""
    match = _OLDEST.search(step.sql)
    if match is None:
        raise ValueError(f"migration {step.number} does not say which releases it serves")
    return int(match[1])


def _missing(found: _Found | None, location: str) -> list[Migration]:
    number = 0 if found is None else found.number
    if number > WANTED:
        raise SchemaMismatch(
            f"{location} has schema {number}, and Windlass {__version__} knows {WANTED}; "
            "upgrade windlass here"
        )
    missing = [step for step in MIGRATIONS if step.number > number]
    if missing or (found is not None and found.has_other_functions):
        missing.append(functions_step())
    return missing


def _body(step: Migration) -> str:
    head = "SET LOCAL search_path = {schema}, pg_catalog;\n"
    if step.name == "functions":
        statements = load_statements(_PACKAGE, "sql/statements.sql")
        before, after = statements["note_functions"], statements["grant_functions"]
        digest = _RECORD_FUNCTIONS.format(digest=functions_digest(), number=step.number)
        return (
            f"{head}SET LOCAL check_function_bodies = off;\n{before};\n\n{step.sql.strip()}\n\n"
            f"{after};\n{digest}"
        )
    record = _RECORD.format(
        number=step.number, name=step.name, oldest=oldest_of(step), release=__version__
    )
    return f"{head}\n{step.sql.strip()}\n\n{record}"


def _guard(step: Migration, names: Names) -> str:
    """Return the lines that end a script which would wait for long, or is for another schema.

    Without ON_ERROR_STOP, psql continues with the next step after a failed one.
    """
    if step.number == 1 and step.name != "functions":
        _, _, used = names.statements()["schema_is_used"].partition("\n")
        wrong = "({})".format(used.replace("%(schema)s", "{literal}"))
        problem = "already contains other objects"
        lock = ""
    else:
        before = step.number if step.name == "functions" else step.number - 1
        wrong = f"{_LAST_NUMBER} IS DISTINCT FROM {before}"
        problem = f"is not at step {before}"
        lock = f"{_LOCK};\n"
    return f"""\
SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}';
{lock}DO $$ BEGIN
    IF {wrong} THEN
        RAISE EXCEPTION 'schema {names.schema} {problem}'
            USING HINT = 'print the script again, or choose another schema with --schema';
    END IF;
END $$;
"""


async def _is_used(connection: AsyncConnection[Any], names: Names) -> bool:
    """Return whether a schema has objects: then the privileges of others are not revoked."""
    statements = names.statements()
    cursor = await connection.execute(statements["schema_is_used"], {"schema": names.schema})
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def _find(connection: AsyncConnection[Any], names: Names) -> _Found | None:
    statements = names.statements()
    cursor = await connection.execute(statements["schema_exists"], (names.schema,))
    row = await cursor.fetchone()
    if row is None or not row[0]:
        return None
    try:
        cursor = await connection.execute(statements["schema_number"])
        row = await cursor.fetchone()
    except psycopg.errors.InsufficientPrivilege as error:
        raise SchemaMismatch(
            f"this role has no rights on schema {names.schema}; docs/postgresql.md lists the grants"
        ) from error
    return None if row is None else _Found(*row)
