"""Owns the way from a URL to a store."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from windlass.core.errors import ConfigError
from windlass.store.memory import MemoryStore
from windlass.store.protocol import Store
from windlass.store.sqlite import SqliteStore

_KNOWN = "sqlite:///relative.db, sqlite:////absolute.db or memory://"


def store_at(url: str, *, queue_size: int) -> Store:
    """Return the store that a URL names, not opened yet.

    Raises:
        ConfigError: the URL names none.
    """
    parts = urlsplit(url)
    if parts.scheme == "memory":
        return MemoryStore(size=queue_size)
    if parts.scheme != "sqlite":
        raise ConfigError(f"no store is known for {parts.scheme or url!r} URLs; use {_KNOWN}")
    if parts.netloc:
        raise ConfigError(f"an SQLite URL has three slashes or four: {_KNOWN}")
    if parts.query or parts.fragment:
        raise ConfigError(f"an SQLite URL takes no options: {_KNOWN}")
    path = unquote(parts.path).removeprefix("/")
    if path in ("", ":memory:"):
        raise ConfigError(f"an SQLite URL names a file: {_KNOWN}")
    return SqliteStore(Path(path))
