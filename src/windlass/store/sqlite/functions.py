"""Owns functions for SQL statements: SQLite's own paths cannot name every field of a document."""

from __future__ import annotations

import sqlite3

import msgspec

from windlass.core.search.documents import text_at

_path = msgspec.json.Decoder(list[str])


def add_functions(connection: sqlite3.Connection) -> None:
    """Give a connection the function by which a search looks into documents."""
    connection.create_function("text_at", 2, _text_at, deterministic=True)


def _text_at(document: str | bytes | None, path: str) -> str | None:
    return None if document is None else text_at(document, _path.decode(path))
