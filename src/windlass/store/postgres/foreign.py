"""Owns statements on connections that are not ours: whatever library a user's transaction is in.

No library is imported here: who hands us a connection has imported its library already.
"""

from __future__ import annotations

import inspect
from typing import Any

from psycopg import AsyncConnection, Connection
from psycopg.rows import tuple_row

from windlass.core.errors import ConfigError
from windlass.store.postgres.wire import Row

_KNOWN = (
    "a psycopg, asyncpg, SQLAlchemy or Django connection, or a SQLAlchemy Session or AsyncSession"
)


def foreign(connection: object, statement: str, value: str) -> list[Row]:
    """Run a statement with one value on a blocking connection, and return its rows.

    Raises:
        ConfigError: this is no connection that we know, or one for event loops.
    """
    if isinstance(connection, Connection):
        cursor = connection.cursor(row_factory=tuple_row)
        return cursor.execute(statement, (value,)).fetchall()
    library = _library_of(connection)
    if library == "sqlalchemy" and not _is_async(connection, "execute"):
        return [tuple(row) for row in _sqlalchemy(connection, statement, value)]
    if library == "django":
        with _any(connection).cursor() as cursor:
            cursor.execute(statement, (value,))
            return [tuple(row) for row in cursor.fetchall()]
    if library in ("sqlalchemy", "asyncpg") or isinstance(connection, AsyncConnection):
        raise ConfigError(
            f"tx={type(connection).__name__} is awaited: write await using(tx=...).aenqueue(...)"
        )
    raise ConfigError(f"tx={type(connection).__name__} is unknown; give {_KNOWN}")


async def aforeign(connection: object, statement: str, value: str) -> list[Row]:
    """Run a statement with one value on a connection for event loops, and return its rows.

    Raises:
        ConfigError: this is no connection that we know, or one that blocks.
    """
    if isinstance(connection, AsyncConnection):
        cursor = connection.cursor(row_factory=tuple_row)
        await cursor.execute(statement, (value,))
        return await cursor.fetchall()
    library = _library_of(connection)
    if library == "asyncpg":
        rows = await _any(connection).fetch(statement.replace("%s", "$1"), value)
        return [tuple(row) for row in rows]
    if library == "sqlalchemy" and _is_async(connection, "execute"):
        return [tuple(row) for row in await _sqlalchemy(connection, statement, value)]
    if library in ("sqlalchemy", "django") or isinstance(connection, Connection):
        raise ConfigError(
            f"tx={type(connection).__name__} blocks: write using(tx=...).enqueue(...)"
        )
    raise ConfigError(f"tx={type(connection).__name__} is unknown; give {_KNOWN}")


def _sqlalchemy(connection: object, statement: str, value: str) -> Any:
    from sqlalchemy import text

    return _any(connection).execute(
        text(statement.replace("%s::text::json", "CAST(CAST(:jobs AS text) AS json)")),
        {"jobs": value},
    )


def _library_of(connection: object) -> str:
    """Return which library a connection is from, also if it is a subclass or a proxy."""
    for base in type(connection).__mro__:
        library = base.__module__.partition(".")[0]
        if library in ("sqlalchemy", "asyncpg", "django"):
            return library
    return ""


def _is_async(connection: object, method: str) -> bool:
    return inspect.iscoroutinefunction(getattr(connection, method, None))


def _any(connection: object) -> Any:
    return connection
