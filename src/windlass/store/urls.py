"""Owns the way from a URL to a store."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from windlass.core.errors import ConfigError
from windlass.settings import Settings
from windlass.store.protocol import Store

_KNOWN = (
    "postgresql://user@host/database, sqlite:///relative.db, sqlite:////absolute.db or memory://"
)


def store_at(settings: Settings) -> Store:
    """Return the store that the settings name, not opened yet.

    Raises:
        ConfigError: the URL names none, or what it needs is not installed.
    """
    url = settings.url
    parts = urlsplit(url)
    # Each store is imported here, not above: nobody needs more than one of them.
    if parts.scheme == "memory":
        from windlass.store.memory import MemoryStore

        return MemoryStore(size=settings.queue_size)
    if parts.scheme.partition("+")[0] in ("postgresql", "postgres"):
        return _postgres(settings)
    if parts.scheme != "sqlite":
        raise ConfigError(f"no store is known for {parts.scheme or url!r} URLs; use {_KNOWN}")
    if parts.netloc:
        raise ConfigError(f"an SQLite URL has three slashes or four: {_KNOWN}")
    if parts.query or parts.fragment:
        raise ConfigError(f"an SQLite URL takes no options: {_KNOWN}")
    path = unquote(parts.path).removeprefix("/")
    if path in ("", ":memory:"):
        raise ConfigError(f"an SQLite URL names a file: {_KNOWN}")
    from windlass.store.sqlite import SqliteStore

    return SqliteStore(Path(path))


def _postgres(settings: Settings) -> Store:
    try:
        # Whoever keeps jobs elsewhere need not have psycopg.
        from windlass.store.postgres import PostgresStore
        from windlass.store.postgres.pool import Limits
    except ImportError as error:
        raise ConfigError(
            f"a postgresql:// URL needs psycopg ({error}): pip install 'windlass[postgres]'"
        ) from error
    return PostgresStore(
        settings.url,
        schema=settings.schema,
        listen_url=settings.listen_url or None,
        limits=Limits(
            keep=settings.pool_size,
            more=settings.pool_overflow,
            recycle=settings.pool_recycle.total_seconds(),
        ),
    )
