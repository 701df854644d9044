"""Owns the database file: how it is made, opened, migrated, and whose turn it is to write to it."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

from windlass.core.errors import SchemaMismatch, StoreError, StoreUnavailable
from windlass.store.sql import Migration, load_migrations

OLDEST_SQLITE = (3, 37, 0)
_AT_ONCE = fcntl.LOCK_EX | fcntl.LOCK_NB
_BUSY_MS = 5_000
_PAGE_BYTES = 2_048
"""Of a new file. Half of the usual: a commit writes three pages, and a job has few bytes."""
_CACHE_KIB = 16_000
_CHECKPOINT_PAGES = 500
"""Half of the usual: a short log is searched and flushed faster than a long one."""
_WAL_LIMIT = 64 * 1024 * 1024
MIGRATIONS = load_migrations("windlass.store.sqlite")
SCHEMA = MIGRATIONS[-1].number


class Turn:
    """A queue for everybody who writes to, opens or migrates one database file.

    SQLite's own busy timeout polls, so that under many writers some starve until they fail. A lock
    on a file beside the database makes them wait in line instead.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mine = threading.Lock()
        self._descriptor: int | None = None

    def __enter__(self) -> None:
        """Wait for the turn, and take it."""
        self._mine.acquire()
        try:
            fcntl.flock(self._open(), fcntl.LOCK_EX)
        except BaseException:
            self._mine.release()
            raise

    def __exit__(self, *_: object) -> None:
        """Give the turn to whoever is next."""
        try:
            fcntl.flock(self._descriptor or self._open(), fcntl.LOCK_UN)
        finally:
            self._mine.release()

    def take_if_free(self) -> bool:
        """Take the turn if nobody has it; say whether that was so."""
        if not self._mine.acquire(blocking=False):
            return False
        try:
            fcntl.flock(self._descriptor or self._open(), _AT_ONCE)
        except BaseException as error:
            self._mine.release()
            if isinstance(error, BlockingIOError):
                return False
            raise
        return True

    def close(self) -> None:
        """Let go of the file. After a fork, the child does this so that it can hold nobody up."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _open(self) -> int:
        if self._descriptor is None:
            try:
                beside = self._path.with_name(self._path.name + "-turn")
                self._descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise unreachable(self._path, error) from error
        return self._descriptor


def connect(path: Path) -> sqlite3.Connection:
    """Open the file, which exists and has its schema; the caller has the turn."""
    try:
        connection = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, cached_statements=64
        )
        try:
            connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
            # RETURNING keeps its rows in a temporary table; in a file, that costs 0.1 ms each time.
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            connection.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT}")
            if connection.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
                raise StoreError(f"{path} cannot use a write-ahead log; put it on a local disk")
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise unreachable(path, error) from error
    return connection


def prepare(path: Path) -> list[Migration]:
    """Make the file if it is not there, bring its schema up to date, and return what that took.

    The caller has the turn.
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
    """Return how many bytes of a file are in use, and how many it has."""
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            pages, free, size = (
                connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_count", "freelist_count", "page_size")
            )
    except sqlite3.Error as error:
        raise unreachable(path, error) from error
    return (pages - free) * size, pages * size


def unreachable(path: Path, error: Exception) -> StoreError:
    """Return the error of ours that says what another says, and what to do about it."""
    said = str(error)
    if "not a database" in said or "malformed" in said:
        return StoreError(
            f"{path} is not an SQLite database, or it is damaged ({said}): "
            "name another file, or restore it from a backup"
        )
    if isinstance(error, FileNotFoundError) or not path.parent.exists():
        return StoreUnavailable(
            f"the directory of {path} does not exist; create it: mkdir -p {path.parent}"
        )
    if "locked" in said or "busy" in said:
        return StoreUnavailable(
            f"another program has held a write lock on {path} for too long ({said}); "
            "is somebody's transaction open in a database shell?"
        )
    if "full" in said:
        return StoreUnavailable(f"the disk of {path} is full ({said}); make room")
    if "readonly" in said or "unable to open" in said or isinstance(error, PermissionError):
        return StoreUnavailable(f"{path} cannot be written ({said}); check its owner and mode")
    return StoreUnavailable(f"{path}: {said}")


def _schema_of(connection: sqlite3.Connection) -> int:
    """Return the number of the last migration that a file has seen."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def _create(path: Path) -> None:
    """Make the file for its owner alone, before SQLite would make it for everybody."""
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
