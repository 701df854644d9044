"""Owns the way from a URL to a store."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from windlass.core.errors import ConfigError
from windlass.core.jobs.spaces import DEFAULT_SPACE
from windlass.settings import Settings
from windlass.store.protocol import Store

_KNOWN_URLS = (
    "postgresql://user@host/database, redis://user:password@host:6379/0, sqlite:///relative.db, "
    "sqlite:////absolute.db or memory://"
)
_REDIS = ("redis", "rediss", "valkey", "valkeys", "unix")


def store_at(settings: Settings) -> Store:
    """Return the store that the settings name, not opened yet.

    Raises:
        ConfigError: the URL names no store, or a package that it needs is not installed.
    """
    scheme = settings.url.partition("://")[0].lower()
    _check_spaces(settings, scheme)
    # Each store is imported here, not above: a program needs only one of them.
    if scheme == "memory":
        from windlass.store.memory import MemoryStore

        return MemoryStore(size=settings.queue_size)
    if scheme.partition("+")[0] in ("postgresql", "postgres"):
        return _postgres(settings)
    if scheme.partition("+")[0] in _REDIS:
        return _redis(settings)
    if scheme != "sqlite":
        raise ConfigError(f"there is no store for {scheme!r} URLs; use {_KNOWN_URLS}")
    try:
        parts = urlsplit(settings.url)
    except ValueError as error:  # For example a bracket that is not closed.
        raise ConfigError(
            f"an SQLite URL must name a file, got {error}; use {_KNOWN_URLS}"
        ) from None
    if parts.netloc:
        raise ConfigError(f"an SQLite URL must have three or four slashes; use {_KNOWN_URLS}")
    if parts.query or parts.fragment:
        raise ConfigError(f"an SQLite URL takes no options; use {_KNOWN_URLS}")
    path = unquote(parts.path).removeprefix("/")
    if path in ("", ":memory:"):
        raise ConfigError(f"an SQLite URL must name a file; use {_KNOWN_URLS}")
    from windlass.store.sqlite import SqliteStore

    return SqliteStore(Path(path))


def _postgres(settings: Settings) -> Store:
    try:
        # Programs with another store need not install psycopg.
        from windlass.store.postgres import PostgresStore
        from windlass.store.postgres.connections.pool import PoolSize
    except ImportError as error:
        # On one line: psycopg without a libpq lists everything that it has tried.
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"a postgresql:// URL needs psycopg ({reason}): pip install 'windlass[postgres]'"
        ) from error
    return PostgresStore(
        settings.url,
        schema=settings.schema,
        listen_url=settings.listen_url or None,
        limits=PoolSize(
            keep=settings.pool_size,
            more=settings.pool_overflow,
            recycle=settings.pool_recycle.total_seconds(),
        ),
    )


def _redis(settings: Settings) -> Store:
    try:
        # Programs with another store need not install hiredis.
        from windlass.store.redis import RedisSpaces, RedisStore
    except ImportError as error:
        raise ConfigError(
            f"a redis:// URL needs hiredis ({error}): pip install 'windlass[redis]'"
        ) from error
    if not settings.spaces:
        return RedisStore(settings.url, kept=settings.max_finished)
    return RedisSpaces(
        settings.url,
        settings.spaces,
        chosen=settings.space or None,
        kept=settings.max_finished,
    )


def _check_spaces(settings: Settings, scheme: str) -> None:
    if settings.spaces and scheme.partition("+")[0] not in _REDIS:
        raise ConfigError(
            f"spaces must be used with Redis, got a {scheme}:// URL; remove spaces, or use "
            "redis+cluster://host1,host2"
        )
    known = [DEFAULT_SPACE, *(space.name for space in settings.spaces)]
    if settings.space and settings.space not in known:
        raise ConfigError(
            f"space must be one of {', '.join(known)}, got {settings.space!r}; correct it, or add "
            "it to spaces"
        )
