"""Owns the SQL files of stores: named statements and numbered migrations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pkgutil import get_data
from types import MappingProxyType
from typing import NamedTuple

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_MIGRATION = re.compile(r"(\d{4})_(\w+)\.sql")


class Migration(NamedTuple):
    """A step of a schema, applied once and in the order of its number."""

    number: int
    name: str
    sql: str


def load_statements(package: str, file: str = "statements.sql") -> Mapping[str, str]:
    """Return the statements of a .sql file, each under the name in the comment above it."""
    # Not by importlib.resources, which loads shutil and tempfile into every process.
    parts = _NAME.split((get_data(package, file) or b"").decode())
    return MappingProxyType(dict(zip(parts[1::2], map(str.strip, parts[2::2]), strict=True)))


def repeat_values(statement: str, times: int) -> str:
    """Return an INSERT of one row as one of many rows."""
    return re.sub(r"(?<=VALUES )(\([^)]*\))", lambda row: ", ".join([row[1]] * times), statement)


def load_migrations(package: str, directory: str = "migrations") -> list[Migration]:
    """Return the migrations in a directory of a package, in order."""
    # Imported here: only few processes read migrations.
    from importlib.resources import files

    return sorted(
        Migration(int(match[1]), match[2], entry.read_text("utf-8"))
        for entry in files(package).joinpath(directory).iterdir()
        if (match := _MIGRATION.fullmatch(entry.name)) is not None
    )


def oldest_jobs_first(statement: str) -> str:
    """Turn a statement that lists the newest jobs first into one that lists the oldest first."""
    return statement.replace("ORDER BY id DESC", "ORDER BY id")
