"""Owns statements on users' own connections, whichever library they come from.

No library is imported here: a caller that has a connection has imported its library already.
"""

from __future__ import annotations

import inspect
from typing import Any

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.rows import tuple_row

from windlass.core.errors import ConfigError
from windlass.store.postgres.connections.connection import Row

_KNOWN = (
    "a psycopg, asyncpg, SQLAlchemy or Django connection, or a SQLAlchemy Session or AsyncSession"
)


def run_on(connection: object, statement: str, value: str) -> list[Row]:
    """Run a statement with one value on a blocking connection, and return its rows.

    Raises: ConfigError: the type of the connection is not supported, or is asynchronous.
    """
    if isinstance(connection, Connection):
        # Not by the connection's own factories, which may return other rows and use other
        # placeholders.
        return Cursor(connection, row_factory=tuple_row).execute(statement, (value,)).fetchall()
    library = _library_of(connection)
    if library == "sqlalchemy" and not _is_async(connection):
        return [tuple(row) for row in _sqlalchemy(connection, statement, value)]
    if library == "django":
        with _any(connection).cursor() as cursor:
            cursor.execute(statement, (value,))
            return [tuple(row) for row in cursor.fetchall()]
    if library or isinstance(connection, AsyncConnection):
        raise ConfigError(
            f"tx={type(connection).__name__} is asynchronous; write await "
            "using(tx=...).aenqueue(...)"
        )
    raise ConfigError(f"tx={type(connection).__name__} is not supported; pass {_KNOWN}")


async def arun_on(connection: object, statement: str, value: str) -> list[Row]:
    """Run a statement with one value on an asynchronous connection, and return its rows.

    Raises: ConfigError: the type of the connection is not supported, or is blocking.
    """
    if isinstance(connection, AsyncConnection):
        cursor = AsyncCursor(connection, row_factory=tuple_row)
        await cursor.execute(statement, (value,))
        return await cursor.fetchall()
    library = _library_of(connection)
    if library == "asyncpg":
        rows = await _any(connection).fetch(statement.replace("%s", "$1"), value)
        return [tuple(row) for row in rows]
    if library == "sqlalchemy" and _is_async(connection):
        return [tuple(row) for row in await _sqlalchemy(connection, statement, value)]
    if library or isinstance(connection, Connection):
        raise ConfigError(
            f"tx={type(connection).__name__} is synchronous; write using(tx=...).enqueue(...)"
        )
    raise ConfigError(f"tx={type(connection).__name__} is not supported; pass {_KNOWN}")


def _sqlalchemy(connection: object, statement: str, value: str) -> Any:
    from sqlalchemy import text

    return _any(connection).execute(
        text(statement.replace("%s::text::json", "CAST(CAST(:jobs AS text) AS json)")),
        {"jobs": value},
    )


_METHODS = {"sqlalchemy": "execute", "asyncpg": "fetch", "django": "cursor"}


def _library_of(connection: object) -> str:
    """Return the library of a connection, also of a subclass or a proxy.

    Engines and pools do not count: their statements are in no transaction of the user's.
    """
    for base in type(connection).__mro__:
        library = base.__module__.partition(".")[0]
        method = _METHODS.get(library)
        if method is not None and hasattr(connection, method):
            return "" if hasattr(connection, "acquire") else library
    return ""


def _is_async(connection: object) -> bool:
    return inspect.iscoroutinefunction(getattr(connection, "execute", None))


def _any(connection: object) -> Any:
    return connection
