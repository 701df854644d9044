"""Owns Windlass as a contender: an app with its defaults, and one worker process."""

from __future__ import annotations

import time
from pathlib import Path
from typing import ClassVar

from windlass import Windlass
from windlass.cli.processes.signals import serve
from windlass.settings import Settings

_DEFAULTS = Settings()


class WindlassSqlite:
    """Windlass on SQLite, as it comes."""

    name: ClassVar[str] = "Windlass"
    settings: ClassVar[str] = (
        f"WAL, acknowledged writes synchronous=FULL, {_DEFAULTS.concurrency} slots, "
        f"batches of {_DEFAULTS.claim_size}, async handlers"
    )
    left: ClassVar[str] = """
        SELECT EXISTS (SELECT 1 FROM jobs WHERE state = 'pending')
            OR EXISTS (SELECT 1 FROM jobs WHERE state = 'running')
            OR EXISTS (SELECT 1 FROM jobs WHERE state = 'scheduled' AND waiting_for IS NULL)
    """

    def __init__(self, directory: Path, starts: list[int]) -> None:
        self._file = directory / "windlass.db"
        self._app = Windlass(f"sqlite:///{self._file}")

        @self._app.job
        async def noop() -> None:
            starts.append(time.monotonic_ns())

        @self._app.job
        async def stamped(sent: int) -> None:
            starts.append(time.monotonic_ns() - sent)

        self._noop = noop
        self._stamped = stamped

    @property
    def file(self) -> Path:
        """The database file."""
        return self._file

    def enqueue(self) -> None:
        """Enqueue one no-op, and return when it is committed."""
        self._noop.enqueue()

    def enqueue_bulk(self, count: int) -> None:
        """Enqueue many no-ops in one call."""
        self._app.enqueue_many([self._noop.draft() for _ in range(count)])

    def enqueue_stamped(self) -> None:
        """Enqueue one job that carries the moment just before this call."""
        self._stamped.enqueue(time.monotonic_ns())

    def work(self) -> None:
        """Serve as a worker, in this thread, until SIGINT."""
        serve(self._app.worker())

    def close(self) -> None:
        """Let go of the file."""
        self._app.close()
