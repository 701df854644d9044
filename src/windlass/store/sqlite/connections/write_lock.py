"""Owns the lock between the processes that write to one database file."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
import time
from pathlib import Path

from windlass.core.errors import StoreError, StoreRefused, StoreUnavailable

_POLL_SECONDS = 0.005
_LOCKS = Path("/proc/locks")


class WriteLock:
    """A queue for everything that writes to, makes or migrates one database file.

    SQLite's own busy timeout polls, so that under many writers some starve until they fail. A lock
    on a file beside the database makes them wait in line instead.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock_file = path.with_name(path.name + "-turn")
        self._in_process = threading.Lock()
        self._descriptor: int | None = None
        self._waits_since: float | None = None

    @property
    def waiting_seconds(self) -> float:
        """How long this process has been waiting for the lock; 0 if it is not."""
        since = self._waits_since
        return 0.0 if since is None else time.monotonic() - since

    def __enter__(self) -> None:
        self._in_process.acquire()
        try:
            descriptor = self._descriptor or self._open()
            self._waits_since = time.monotonic()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except BaseException:
            self._in_process.release()
            raise
        finally:
            self._waits_since = None

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        try:
            fcntl.flock(self._descriptor or self._open(), fcntl.LOCK_UN)
        finally:
            self._in_process.release()

    def acquire_if_free(self) -> bool:
        """Acquire the lock without waiting; return whether it was free."""
        if not self._in_process.acquire(blocking=False):
            return False
        try:
            fcntl.flock(self._descriptor or self._open(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException as error:
            self._in_process.release()
            if isinstance(error, BlockingIOError):
                return False
            raise
        return True

    def acquire_within(self, timeout: float) -> bool:
        """Acquire the lock if it comes free within a time; return whether it did.

        For work that is better done under the lock, but must not wait for a stopped process.
        """
        until = time.monotonic() + timeout
        while not self.acquire_if_free():
            if time.monotonic() >= until:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def holder(self) -> int | None:
        """Return the id of the process that holds the lock, if this system can tell."""
        try:
            inode = self._lock_file.stat().st_ino
            lines = _LOCKS.read_text().splitlines()
        except OSError:
            return None
        for line in lines:
            # As in `3: FLOCK  ADVISORY  WRITE 10717 fe:00:2389521 0 EOF`.
            words = line.split()
            is_held = len(words) > 5 and words[1] == "FLOCK"  # Waiting ones have an arrow there.
            if is_held and words[5].rpartition(":")[2] == str(inode):
                return int(words[4]) if int(words[4]) > 0 else None
        return None

    def blame(self) -> str:
        """Return a message that names the holder and, if it is stopped, the remedy."""
        pid = self.holder()
        if pid is None:
            return f"another process holds the write lock on {self._path}"
        if is_stopped(pid):
            return (
                f"process {pid} holds the write lock on {self._path} and is stopped; resume it "
                f"with kill -CONT {pid}, or end it"
            )
        return f"process {pid} holds the write lock on {self._path}"

    def close(self) -> None:
        """Close the lock file. A forked child does this so that it does not hold the lock."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _open(self) -> int:
        if self._descriptor is None:
            try:
                if _is_directory(self._path):
                    raise IsADirectoryError  # Before a lock file is left beside the directory.
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
                self._descriptor = os.open(self._lock_file, flags, 0o600)
            except OSError as error:
                raise unreachable(self._path, error) from error
        return self._descriptor


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped by a signal or a debugger."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in "tT"


def unreachable(path: Path, error: Exception) -> StoreError:
    """Return the `StoreError` for an error of SQLite or the system, with its remedy."""
    said = str(error)
    if _is_directory(path):
        return StoreRefused(
            f"{path} is a directory; name a file, for example sqlite:///{path / 'windlass.db'}"
        )
    if "not a database" in said or "malformed" in said:
        return StoreError(
            f"{path} is not an SQLite database, or it is damaged ({said}); name another file, or "
            "restore it from a backup"
        )
    if isinstance(error, sqlite3.DataError | sqlite3.IntegrityError | sqlite3.InterfaceError):
        return StoreError(f"{path} refused this ({said}); repeating it would not help")
    if isinstance(error, FileNotFoundError) or not path.parent.exists():
        return StoreRefused(
            f"the directory of {path} does not exist; create it: mkdir -p {path.parent}"
        )
    if "locked" in said or "busy" in said:
        return StoreUnavailable(
            f"another program has held a write lock on {path} for too long ({said}), so nothing "
            "was written; check for an open transaction in a database shell"
        )
    if "full" in said:
        return StoreUnavailable(f"the disk of {path} is full ({said}); make room")
    if "readonly" in said or "unable to open" in said or isinstance(error, PermissionError):
        return StoreRefused(f"{path} cannot be written ({said}); check its owner and mode")
    return StoreUnavailable(f"{path}: {said}")


def _is_directory(path: Path) -> bool:
    # Path.is_dir() would raise if a directory above may not be searched.
    return os.path.isdir(path)  # noqa: PTH112
