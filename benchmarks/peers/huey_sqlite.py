"""Owns Huey as a contender: SqliteHuey at the best settings that we found for it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, ClassVar

from huey import SqliteHuey


class HueySqlite:
    """Huey on SQLite, durable. More threads make it slower: they wait for one lock on one file."""

    name: ClassVar[str] = "Huey"
    settings: ClassVar[str] = "WAL, synchronous=FULL (fsync=True), 1 worker thread, delays 0.01 s"
    left: ClassVar[str] = "SELECT EXISTS (SELECT 1 FROM task) OR EXISTS (SELECT 1 FROM schedule)"

    def __init__(self, directory: Path, starts: list[int]) -> None:
        self._file = directory / "huey.db"
        self._huey: Any = SqliteHuey(filename=str(self._file), fsync=True, journal_mode="wal")

        def noop() -> None:
            starts.append(time.monotonic_ns())

        def stamped(sent: int) -> None:
            starts.append(time.monotonic_ns() - sent)

        self._noop: Any = self._huey.task()(noop)
        self._stamped: Any = self._huey.task()(stamped)

    @property
    def file(self) -> Path:
        """The database file."""
        return self._file

    def enqueue(self) -> None:
        """Enqueue one no-op, and return when it is committed."""
        self._noop()

    def enqueue_bulk(self, count: int) -> None:
        """Enqueue many no-ops. Its own bulk call, `task.map`, is a loop of single enqueues."""
        self._noop.map([()] * count)

    def enqueue_stamped(self) -> None:
        """Enqueue one job that carries the moment just before this call."""
        self._stamped(time.monotonic_ns())

    def work(self) -> None:
        """Serve as a worker, in this thread, until SIGINT."""
        self._huey.create_consumer(
            workers=1, periodic=False, initial_delay=0.01, max_delay=0.01, backoff=1.0
        ).run()

    def close(self) -> None:
        """Let go of the file."""
        self._huey.storage.close()
