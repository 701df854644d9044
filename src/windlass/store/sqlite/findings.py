"""Owns the problems that `windlass doctor` finds in a database file."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from windlass.core.jobs.queries import Finding
from windlass.core.stats.depths import Disk
from windlass.store.sqlite.connections.file import usage
from windlass.store.sqlite.connections.write_lock import WriteLock, is_stopped

_LARGE_WAL_BYTES = 256 * 1024 * 1024
_LARGE_SLACK_BYTES = 64 * 1024 * 1024
_REPORTED_FOR = timedelta(hours=1)
"""For how long a process reports that its file was replaced."""


def disk_of(path: Path) -> Disk | None:
    """Return the space on the disk of a file."""
    try:
        used = shutil.disk_usage(path.parent)
    except OSError:
        return None
    return Disk(free=used.free, size=used.total)


def findings_of(
    path: Path, write_lock: WriteLock, replaced_at: datetime | None
) -> Iterator[Finding]:
    """Return the problems of a file that exists."""
    if replaced_at is not None and datetime.now(UTC) - replaced_at < _REPORTED_FOR:
        yield Finding(
            name="file_replaced",
            problem=f"{path} was found deleted or replaced at {replaced_at:%Y-%m-%d %H:%M:%S} "
            "UTC, while this process had it open: jobs that were only in the former file are lost",
            remedy="restore the former file if its jobs are needed; stop workers before you "
            "replace it",
        )
    if (holder := write_lock.holder()) is not None and is_stopped(holder):
        yield Finding(
            name="writer_stopped",
            problem=f"process {holder} holds the write lock on {path} and is "
            "stopped, so no other process can write",
            remedy=f"kill -CONT {holder}, or end it",
        )
    if path.stat().st_mode & 0o077:
        yield Finding(
            name="file_exposed",
            problem=f"{path} can be read by other users of this machine",
            remedy=f"chmod 600 {path}",
        )
    wal = path.with_name(path.name + "-wal")
    wal_bytes = wal.stat().st_size if wal.exists() else 0
    if wal_bytes > _LARGE_WAL_BYTES:
        yield Finding(
            name="log_grown",
            problem=f"the write-ahead log {wal} has grown to {wal_bytes / 1e6:,.0f} MB",
            remedy="find the program that holds a read transaction open, and end it",
        )
    used, size = usage(path)
    if size - used > max(_LARGE_SLACK_BYTES, used):
        yield Finding(
            name="file_mostly_free",
            problem=f"jobs use {used / 1e6:,.0f} of the {size / 1e6:,.0f} MB of "
            f"{path}; the rest is free space from earlier jobs",
            remedy=f"while no worker runs: sqlite3 {path} VACUUM",
        )
