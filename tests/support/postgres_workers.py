"""Owns the yards: on a file, and on a PostgreSQL server, with what only one of them has."""

from __future__ import annotations

import fcntl
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest

from tests.support.worker_processes import LEASE, PATIENCE, WorkerProcess, Yard, until

on_sqlite = pytest.mark.parametrize("yard", ["sqlite"], indirect=True)
"""Marks a test of what only a file has, or what has nothing to do with where the jobs are."""
on_postgres = pytest.mark.parametrize("yard", ["postgres"], indirect=True)
"""Marks a test of what only a server has, or what is tried there with fewer cases."""
NAME = "windlass-yard"
"""The application name of the yard's own connections, which a test that ends others spares."""
INDEXES: LiteralString = """
SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index
WHERE indrelid = 'jobs'::regclass AND NOT indisprimary
"""
OTHERS = "datname = current_database() AND application_name <> 'windlass-yard'"


class SqliteYard(Yard):
    """A yard on a database file."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "jobs.db"
        self.turn = directory / "jobs.db-turn"
        super().__init__(directory, f"sqlite:///{self.file}")

    def freeze(self, worker: WorkerProcess) -> None:
        """Stop a worker, but not while it writes: nobody at all could write to the file then."""
        until(lambda: self._frozen_outside(worker), "a moment at which the worker does not write")

    def charged(self) -> int:
        return int(self._ask("SELECT count(*) FROM jobs WHERE failures + crashes > 0")[0][0])

    @contextmanager
    def raw(self) -> Iterator[sqlite3.Connection]:
        """Open the file as somebody with a database shell does."""
        with closing(sqlite3.connect(self.file, timeout=PATIENCE, isolation_level=None)) as db:
            yield db

    def _frozen_outside(self, worker: WorkerProcess) -> bool:
        worker.freeze()
        if is_free(self.turn):
            return True
        worker.thaw()
        return False

    def _is_seasoned(self, worker: str) -> bool:
        lived = datetime.now(UTC) - timedelta(seconds=LEASE)
        since = int(lived.timestamp() * 1e6)
        return bool(self._ask("SELECT 1 FROM workers WHERE id = ? AND since < ?", worker, since))

    def _ended(self, worker: str) -> bool:
        return bool(self._ask("SELECT 1 FROM workers WHERE id = ? AND ended", worker))

    def _ask(self, sql: str, *values: object) -> list[Any]:
        with self.raw() as db:
            return db.execute(sql, values).fetchall()


def is_free(turn: Path) -> bool:
    """Say whether nobody has the turn to write, or will have soon."""
    for _ in range(50):
        with turn.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.01)
            else:
                return True
    return False


class PostgresYard(Yard):
    """A yard on a PostgreSQL database, which workers may reach by another way than the test."""

    def __init__(self, directory: Path, url: str, *, workers_url: str | None = None) -> None:
        self.plain_url = url
        self._shell: psycopg.Connection[Any] | None = None
        super().__init__(directory, named(url), workers_url=workers_url or url)

    def close(self) -> None:
        super().close()
        if self._shell is not None:
            self._shell.close()

    def freeze(self, worker: WorkerProcess) -> None:
        worker.freeze()

    def charged(self) -> int:
        (count,) = self.ask(
            "SELECT sum(n)::int FROM (SELECT count(*) FROM jobs WHERE failures + crashes > 0"
            " UNION ALL SELECT count(*) FROM dead_jobs"
            " UNION ALL SELECT count(*) FROM finished_jobs WHERE failures + crashes > 0) AS c (n)"
        )[0]
        return int(count)

    @contextmanager
    def raw(self) -> Iterator[psycopg.Connection[Any]]:
        """Connect as somebody with a database shell does."""
        with self._connected() as db:
            yield db

    def ask(self, sql: LiteralString, *values: object) -> list[Any]:
        """Run a statement, and return its rows; by a connection that is kept while it works."""
        if self._shell is None or self._shell.closed:
            self._shell = self._connected()
        try:
            cursor = self._shell.execute(sql, values or None)
        except psycopg.OperationalError:
            if not self._shell.broken:
                raise
            self._shell = self._connected()
            cursor = self._shell.execute(sql, values or None)
        return cursor.fetchall() if cursor.description else []

    def look_again(self) -> None:
        """Connect anew for the next statement, to whichever server the URL leads by then."""
        if self._shell is not None:
            self._shell.close()

    def _connected(self) -> psycopg.Connection[Any]:
        db = psycopg.connect(self.url, autocommit=True)
        db.execute("SET search_path = windlass")
        return db

    def value(self, sql: LiteralString, *values: object) -> Any:
        """Return the one value that a query has."""
        ((value,),) = self.ask(sql, *values)
        return value

    @contextmanager
    def unindexed(self) -> Iterator[psycopg.Connection[Any]]:
        """Put many jobs in without their indexes, and make these afterwards, which is faster."""
        with self.raw() as db:
            indexes = db.execute(INDEXES).fetchall()
            for name, _ in indexes:
                db.execute(f"DROP INDEX {name}".encode())
            yield db
            for _, definition in indexes:
                db.execute(definition.encode())

    def hang_up(self, which: LiteralString = "true") -> int:
        """Terminate the backends of everybody but the yard, and return how many those were."""
        ended = self.ask(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OTHERS} AND {which}"
        )
        return len(ended)

    def _is_seasoned(self, worker: str) -> bool:
        seasoned = "SELECT 1 FROM workers WHERE id = %s AND since < clock() - lease"
        return bool(self.ask(seasoned, worker))

    def _ended(self, worker: str) -> bool:
        return bool(self.ask("SELECT 1 FROM workers WHERE id = %s AND ended", worker))


def named(url: str) -> str:
    """Return a URL whose connections carry the yard's name."""
    return f"{url}{'&' if '?' in url else '?'}application_name={NAME}"
