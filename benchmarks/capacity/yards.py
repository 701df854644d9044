"""Owns the stores that are measured: an empty database on a server of ours, or a file."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import psycopg

from benchmarks.capacity import proc
from benchmarks.program import ProgramFailed
from tests.support.postgres.server import Server
from tests.system.bouncer import PgBouncer
from windlass import Kind, Windlass

_LOOK = 0.02
_PATIENCE = 120.0
_CHUNK = 5_000
_TEMPLATE = "capacity_template"
_numbers = itertools.count(1)


class Fillable(Protocol):
    """A store that jobs can be enqueued in."""

    url: str


class Yard(Fillable, Protocol):
    """A store with jobs, which can be filled and looked at."""

    def clock(self) -> int:
        """The store's clock, in microseconds."""
        ...

    def finished(self, since: int, until: int) -> tuple[int, int]:
        """How many jobs ended in that time, and when the last of them did."""
        ...

    def is_empty(self) -> bool:
        """Whether no job waits or runs."""
        ...

    def workers(self) -> int:
        """How many workers are registered."""
        ...

    def server_cpu(self) -> float:
        """CPU time that all processes of the server have used; 0 if there is none."""
        ...

    def wal(self) -> int:
        """Bytes that the server has written to its log so far; 0 if there is none."""
        ...


def fill(
    yard: Fillable, count: int, kind: str = "noop", payload: dict[str, Any] | None = None
) -> None:
    """Enqueue jobs in bulk, in few commits."""
    app = Windlass(yard.url)
    producer = app.producer(Kind(kind, dict[str, Any]))
    for done in range(0, count, _CHUNK):
        app.enqueue_many([producer.draft(payload or {}) for _ in range(min(_CHUNK, count - done))])
    app.close()


def wait_for(what: str, condition: Callable[[], bool], look: float = _LOOK) -> None:
    """Wait until something is so.

    Raises:
        ProgramFailed: It never came to be.
    """
    patience = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > patience:
            raise ProgramFailed(f"waited in vain for {what}")
        time.sleep(look)


class PostgresYard:
    """A database with the schema, on a server of ours."""

    def __init__(self, server: Server, url: str) -> None:
        self.url = url
        self._server = server
        self._db = psycopg.connect(url, autocommit=True, application_name="capacity")

    @property
    def port(self) -> int:
        """The server's port."""
        return self._server.port

    def close(self) -> None:
        """Let go of it."""
        self._db.close()

    @contextmanager
    def beside(self) -> Iterator[PostgresYard]:
        """Give another connection, for another thread."""
        other = PostgresYard(self._server, self.url)
        try:
            yield other
        finally:
            other.close()

    def ask(self, query: str, values: Sequence[object] = ()) -> Any:
        """Return the only value that a query gives."""
        row = self._db.execute(query.encode(), values or None).fetchone()
        return row[0] if row else None

    def tell(self, *statements: str) -> None:
        """Execute statements, each by itself."""
        for statement in statements:
            self._db.execute(statement.encode())

    def clock(self) -> int:
        """The server's clock, in microseconds."""
        return int(self.ask("SELECT extract(epoch FROM clock_timestamp()) * 1000000"))

    def finished(self, since: int, until: int) -> tuple[int, int]:
        """How many jobs ended in that time, and when the last of them did."""
        row = self._db.execute(
            "SELECT count(*), (extract(epoch FROM max(finished_at)) * 1000000)::bigint"
            " FROM windlass.finished_jobs WHERE finished_at > to_timestamp(%s / 1e6)"
            " AND finished_at <= to_timestamp(%s / 1e6)",
            (since, until),
        ).fetchone()
        count, last = row or (0, None)
        return count, last or since

    def is_empty(self) -> bool:
        """Whether no job waits or runs."""
        return not self.ask("SELECT EXISTS (SELECT FROM windlass.jobs)")

    def workers(self) -> int:
        """How many workers are registered."""
        return int(self.ask("SELECT count(*) FROM windlass.workers WHERE NOT ended"))

    def server_cpu(self) -> float:
        """CPU time that all processes of the server have used."""
        return proc.cpu_seconds(proc.family(self._server.pid))

    def backends(self, name: str = "windlass") -> list[int]:
        """The server's processes for connections to this database that have such a name."""
        rows = self._db.execute(
            "SELECT pid FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = %s",
            (name,),
        )
        return [pid for (pid,) in rows]

    def wal(self) -> int:
        """Bytes that the server has written to its log so far."""
        return int(self.ask("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))

    def size(self, table: str) -> tuple[int, int, int]:
        """Bytes of a table with its partitions: of rows, of what does not fit in, of indexes."""
        row = self._db.execute(
            "SELECT coalesce(sum(pg_relation_size(relid)), 0),"
            " coalesce(sum(pg_table_size(relid) - pg_relation_size(relid)), 0),"
            " coalesce(sum(pg_indexes_size(relid)), 0)"
            " FROM (SELECT relid FROM pg_partition_tree(%(name)s) WHERE isleaf UNION"
            " SELECT oid FROM pg_class WHERE oid = %(name)s::regclass AND relkind = 'r') AS parts",
            {"name": f"windlass.{table}"},
        ).fetchone()
        rows, toast, indexes = row or (0, 0, 0)
        return int(rows), int(toast), int(indexes)

    def results(self) -> list[Any]:
        """What finished jobs returned."""
        rows = self._db.execute("SELECT result FROM windlass.finished_jobs ORDER BY finished_at")
        return [result for (result,) in rows]


class SqliteYard:
    """A file with the schema."""

    def __init__(self, file: Path) -> None:
        self.url = f"sqlite:///{file}"
        self._file = file

    def clock(self) -> int:
        """This host's clock, in microseconds."""
        return time.time_ns() // 1000

    def finished(self, since: int, until: int) -> tuple[int, int]:
        """How many jobs ended in that time, and when the last of them did."""
        count, last = self.row(
            "SELECT count(*), max(finished_at) FROM jobs"
            " WHERE state = 'completed' AND finished_at > ? AND finished_at <= ?",
            (since, until),
        )
        return count, last or since

    def is_empty(self) -> bool:
        """Whether no job waits or runs."""
        (left,) = self.row(
            "SELECT EXISTS (SELECT 1 FROM jobs WHERE state = 'pending')"
            " OR EXISTS (SELECT 1 FROM jobs WHERE state = 'running')"
        )
        return not left

    def workers(self) -> int:
        """How many workers are registered."""
        return int(self.row("SELECT count(*) FROM workers WHERE NOT ended")[0])

    def server_cpu(self) -> float:
        """Nothing: there is no server."""
        return 0.0

    def wal(self) -> int:
        """Nothing: the log is a part of the file."""
        return 0

    def size(self) -> int:
        """Bytes of the file, and of its log."""
        return sum(
            path.stat().st_size
            for path in (self._file, self._file.with_name(f"{self._file.name}-wal"))
            if path.exists()
        )

    def row(self, query: str, values: Sequence[object] = ()) -> Any:
        """Return the first row that a query gives."""
        with closing(sqlite3.connect(self._file, timeout=30)) as db:
            return db.execute(query, values).fetchone()


class Site:
    """Where yards are made: a server of ours, and a directory on a real disk."""

    def __init__(self, server: Server, directory: Path) -> None:
        self._server = server
        self._directory = directory
        _migrate(server.create_database(_TEMPLATE))

    @contextmanager
    def postgres(self) -> Iterator[PostgresYard]:
        """Give an empty database, for as long as this lasts."""
        name = f"capacity_{next(_numbers)}"
        yard = PostgresYard(self._server, self._server.create_database(name, _TEMPLATE))
        try:
            yield yard
        finally:
            yard.close()
            self._server.drop_database(name)

    @contextmanager
    def sqlite(self) -> Iterator[SqliteYard]:
        """Give an empty file, for as long as this lasts."""
        with tempfile.TemporaryDirectory(prefix="windlass-capacity-", dir=self._directory) as name:
            yard = SqliteYard(Path(name) / "windlass.db")
            _migrate(yard.url)
            yield yard

    def pooler(self) -> PgBouncer:
        """Give a pooler in front of the server, which is still to be started."""
        return PgBouncer(self._server)

    def version(self) -> str:
        """The server's version, and that it is durable.

        Raises:
            ProgramFailed: It is not, so that no figure would mean anything.
        """
        with self._server.connection() as db:
            names = ("fsync", "synchronous_commit", "full_page_writes", "server_version")
            found = {name: db.execute(f"SHOW {name}".encode()).fetchone() for name in names}
        *switches, version = (row[0] if row else "" for row in found.values())
        if set(switches) != {"on"}:
            raise ProgramFailed("the server is not durable")
        return str(version)


def _migrate(url: str) -> None:
    async def migrate() -> None:
        app = Windlass(url)
        await app.store.migrate()
        await app.aclose()

    asyncio.run(migrate())
