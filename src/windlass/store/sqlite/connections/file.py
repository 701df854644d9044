"""Owns the database file: how it is made, opened and migrated."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from windlass.core.errors import SchemaMismatch, StoreError
from windlass.core.search.documents import text_at
from windlass.store.sql_files import Migration, load_migrations
from windlass.store.sqlite.connections.write_lock import WriteLock, unreachable

_path = msgspec.json.Decoder(list[str])
OLDEST_SQLITE = (3, 37, 0)
_OPEN_LOCK_SECONDS = 0.3
"""Seconds that an open waits for the write lock before it continues without."""
_BUSY_MS = 5_000
_PAGE_BYTES = 2_048
"""Half of the default: a commit writes three pages, and a job has few bytes."""
_CACHE_KIB = 16_000
_CHECKPOINT_PAGES = 1_000
"""2 MB. Half as many cost a lone enqueue 3 %, and twice as many save nothing more."""
_MAX_WAL_BYTES = 64 * 1024 * 1024
MIGRATIONS = load_migrations("windlass.store.sqlite")
SCHEMA = MIGRATIONS[-1].number


def connect(path: Path) -> sqlite3.Connection:
    """Open a file that exists and has its schema."""
    try:
        connection = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, cached_statements=64
        )
        try:
            _add_functions(connection)
            connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
            # Statements keep lists in temporary tables; in files, that would cost 0.1 ms each time.
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            connection.execute(f"PRAGMA journal_size_limit = {_MAX_WAL_BYTES}")
            if connection.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
                raise StoreError(f"{path} cannot use a write-ahead log; put it on a local disk")
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise unreachable(path, error) from error
    return connection


@contextmanager
def opening(path: Path, write_lock: WriteLock) -> Iterator[None]:
    """Make or migrate the file if needed, and let the block open it.

    Under the write lock if that comes free soon, since SQLite's own locks let some opens fail under
    load. But a reader must not wait for a process that is stopped while it holds the lock.
    """
    if write_lock.acquire_within(_OPEN_LOCK_SECONDS):
        try:
            prepare(path)
            yield
        finally:
            write_lock.release()
        return
    if not is_current(path):
        with write_lock:
            prepare(path)
    yield


def is_current(path: Path) -> bool:
    """Return whether the file exists and has the schema of this release."""
    try:
        return schema_at(path) == SCHEMA
    except StoreError:
        return False


def prepare(path: Path) -> list[Migration]:
    """Make the file if it does not exist, migrate it, and return the steps taken.

    The caller holds the write lock.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        needed = ".".join(map(str, OLDEST_SQLITE))
        raise StoreError(
            f"Python's SQLite is {sqlite3.sqlite_version} and Windlass needs {needed} or newer; "
            "use a newer Python"
        )
    _create(path)
    connection = connect(path)
    try:
        return _migrate(connection, path)
    except sqlite3.Error as error:
        raise unreachable(path, error) from error
    finally:
        connection.close()


def schema_at(path: Path) -> int | None:
    """Return the number of a file's schema, or None if there is no file; change nothing."""
    if not path.exists():
        if not path.parent.is_dir():
            raise unreachable(path, FileNotFoundError())
        return None
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            return _schema_of(connection)
    except sqlite3.Error as error:
        raise unreachable(path, error) from error


def usage(path: Path) -> tuple[int, int]:
    """Return how many bytes of a file are in use, and its size."""
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            pages, free, size = (
                connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_count", "freelist_count", "page_size")
            )
    except sqlite3.Error as error:
        raise unreachable(path, error) from error
    return (pages - free) * size, pages * size


def _schema_of(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def _create(path: Path) -> None:
    """Make the file readable for its owner only; SQLite would make it readable for all."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return
    except OSError as error:
        raise unreachable(path, error) from error


def _migrate(connection: sqlite3.Connection, path: Path) -> list[Migration]:
    version = _schema_of(connection)
    if version > SCHEMA:
        raise SchemaMismatch(
            f"{path} has schema {version} and this release knows only up to {SCHEMA}: "
            "upgrade windlass here"
        )
    due = [migration for migration in MIGRATIONS if migration.number > version]
    for migration in due:
        # One script, one transaction: a crash in the middle leaves the schema as it was.
        connection.executescript(
            f"BEGIN IMMEDIATE;\n{migration.sql}\nPRAGMA user_version = {migration.number};\nCOMMIT;"
        )
    return due


def _add_functions(connection: sqlite3.Connection) -> None:
    """Give a connection the function by which a search looks into documents.

    SQLite's own paths cannot name every field of a document.
    """
    connection.create_function("text_at", 2, _text_at, deterministic=True)


def _text_at(document: str | bytes | None, path: str) -> str | None:
    return None if document is None else text_at(document, _path.decode(path))
