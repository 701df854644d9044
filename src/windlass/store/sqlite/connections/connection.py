"""Owns one connection to the database file, and a transaction on it."""

from __future__ import annotations

import sqlite3
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from windlass.store.sqlite.connections.file import connect, opening
from windlass.store.sqlite.connections.write_lock import WriteLock

_FILE_CHECK_SECONDS = 0.2
"""Seconds between checks whether the file is still the one that was opened."""
_CLOSE_LOCK_SECONDS = 0.2
"""Seconds that a close waits for the write lock before it continues without."""
_BUSY_SECONDS = 5.0
_BUSY_POLL_SECONDS = 0.01


class FileConnection:
    """A connection that is opened on demand, and again when the file was replaced."""

    def __init__(self, path: Path, write_lock: WriteLock) -> None:
        self._path = path
        self._write_lock = write_lock
        self._connection: sqlite3.Connection | None = None
        self._inode = 0
        self._next_file_check = 0.0
        self.replaced_at: datetime | None = None
        """When another file, or none, was last found where the open one had been."""
        self._in_use = threading.Lock()

    def suspend(self, timeout: float) -> bool:
        """Close the connection and keep it closed until `resume`; return whether that worked."""
        if not self._in_use.acquire(timeout=timeout):
            return False
        connection, self._connection = self._connection, None
        if connection is not None:
            # Without the write lock: a fork must not wait, and SQLite itself decides which
            # connection removes the log.
            connection.close()
        return True

    def resume(self) -> None:
        """Let the connection be opened again."""
        self._in_use.release()

    def _connected(self) -> sqlite3.Connection:
        self._check_file_if_due()
        if self._connection is None:
            self._connection = self._connect()
            self._inode = self._path.stat().st_ino
        return self._connection

    def _check_file_if_due(self) -> None:
        """Close a connection to a file that was deleted or replaced: writes to it are lost."""
        now = time.monotonic()
        if now < self._next_file_check:
            return
        self._next_file_check = now + _FILE_CHECK_SECONDS
        try:
            inode = self._path.stat().st_ino
        except OSError:
            inode = 0
        connection = self._connection
        if inode != self._inode and connection is not None:
            if self._inode:
                self.replaced_at = datetime.now(UTC)
            self._connection = None
            connection.close()

    def _connect(self) -> sqlite3.Connection:
        with opening(self._path, self._write_lock):
            return connect(self._path)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # The last close removes the log; other processes should not open the file meanwhile.
            locked = self._write_lock.acquire_within(_CLOSE_LOCK_SECONDS)
            try:
                connection.close()
            finally:
                if locked:
                    self._write_lock.release()


class ChangeWatch(FileConnection):
    """Notices commits of any connection of any process."""

    def version(self) -> int:
        """Return a number that changes with every commit of any other connection."""
        with self._in_use:
            return self._version(self._connected())

    def version_if_ready(self) -> int | None:
        """Return the same number without waiting; None if the connection is not ready.

        Takes a few microseconds of shared memory, so an event loop may call it.
        """
        if not self._in_use.acquire(blocking=False):
            return None
        try:
            self._check_file_if_due()
            return None if self._connection is None else self._version(self._connection)
        finally:
            self._in_use.release()

    def close(self) -> None:
        with self._in_use:
            self._disconnect()

    def _version(self, connection: sqlite3.Connection) -> int:
        version: int = connection.execute("PRAGMA data_version").fetchone()[0]
        return hash((self._inode, id(connection), version))


class Busy(sqlite3.OperationalError):
    """Another connection is writing."""


def is_busy(error: sqlite3.Error) -> bool:
    """Return whether a statement failed because another connection is writing."""
    if isinstance(error, Busy):
        return True
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


class Transaction:
    """Commits, or rolls back everything. It does not begin while another connection writes."""

    __slots__ = ("_connection", "commit_seconds")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.commit_seconds = 0.0

    def __enter__(self) -> Self:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if is_busy(error):
                raise Busy(str(error)) from error
            raise
        except BaseException:
            # A signal handler raised, in the thread of a user who writes here.
            self._roll_back()
            raise
        return self

    def __exit__(self, error: object, *_: object) -> None:
        try:
            if error is None:
                began = time.perf_counter()
                self._connection.execute("COMMIT")
                self.commit_seconds = time.perf_counter() - began
        finally:
            self._roll_back()

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


class WaitingTransaction(Transaction):
    """Waits for a while for programs that write without the write lock.

    SQLite could wait by itself, but only for one time that is set with the connection.
    """

    __slots__ = ()

    def __enter__(self) -> Self:
        until = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                return super().__enter__()
            except Busy:
                if time.monotonic() > until:
                    raise
                time.sleep(_BUSY_POLL_SECONDS)
