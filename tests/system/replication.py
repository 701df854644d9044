"""Owns pairs of PostgreSQL 15 servers of Debian: a primary, and copies of it that follow or not."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit
from uuid import uuid4

from tests.support.clocked_stores import migrate
from tests.support.postgres.server import FAST, Server, ServerFailed, plain_environ
from tests.support.postgres.wheel import identity
from tests.support.worker_processes import until
from tests.system.debian import VERSION, program

STANDBY = "standby"
"""The name by which the primary knows its standby, if it has one."""


class Primary(Server):
    """PostgreSQL 15 as Debian builds it, which may have standbys."""

    def __init__(self) -> None:
        super().__init__(version=VERSION)

    def _binaries(self) -> Path:
        return program("postgres").parent

    def _initdb(self, binaries: Path) -> None:
        super()._initdb(binaries)
        self.configure(**{**FAST, "wal_level": "replica", "hot_standby": "on"})

    def configure(self, **settings: str | int) -> None:
        """Add settings to the server's file."""
        with (self._data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def reload(self, **settings: str | int) -> None:
        """Change settings of the running server."""
        self.configure(**settings)
        with self.connection() as db:
            db.execute("SELECT pg_reload_conf()")


class Copy(Primary):
    """A server that begins with a base backup of another; as a standby, it follows that one."""

    def __init__(self, source: Server, *, follows: bool, name: str = STANDBY) -> None:
        super().__init__()
        self.name = name
        self.promoted_at = 0.0
        self._source = source
        self._follows = follows

    def _initdb(self, binaries: Path) -> None:
        where = f"host=127.0.0.1 port={self._source.port} user=postgres"
        where += f" application_name={self.name}"
        command = [binaries / "pg_basebackup", "--pgdata", self._data, "--dbname", where]
        command += ["--wal-method=stream", "--checkpoint=fast", "--no-sync"]
        done = subprocess.run(
            [*map(str, command), *(["--write-recovery-conf"] if self._follows else [])],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=self.directory,
            env=plain_environ(),
            **identity(self._nobody),
        )
        if done.returncode:
            raise ServerFailed(f"pg_basebackup: {done.stderr}")
        self._data.chmod(0o700)

    def back_up(self) -> None:
        """Make the base backup now; the server is started later."""
        self._own(self._data, self._sockets)
        self._initdb(self._binaries())

    def promote(self) -> None:
        """End the recovery: this is the primary from now on."""
        with self.connection() as db:
            self.promoted_at = time.time()
            assert db.execute("SELECT pg_promote()").fetchone() == (True,)

    def let_go(self) -> None:
        """Receive nothing more from the primary, as behind a network that broke."""
        with self.connection() as db:
            db.execute("ALTER SYSTEM SET primary_conninfo = ''")
            db.execute("SELECT pg_reload_conf()")
        until(lambda: not self._receives(), "the end of the replication")

    def received(self) -> int:
        """Return how far it has received what the primary wrote."""
        with self.connection() as db:
            row = db.execute("SELECT pg_last_wal_receive_lsn() - '0/0'::pg_lsn").fetchone()
        assert row is not None
        return int(row[0])

    def _receives(self) -> bool:
        with self.connection() as db:
            return db.execute("SELECT FROM pg_stat_wal_receiver").fetchone() is not None

    def _is_ready(self) -> bool:
        try:
            lines = (self._data / "postmaster.pid").read_text().split("\n")
        except FileNotFoundError:
            return False
        is_up = len(lines) > 7 and lines[7].strip() in ("ready", "standby")
        return lines[0] == str(self.pid) and is_up


@contextmanager
def pair(commits: Literal["synchronous", "asynchronous"]) -> Iterator[tuple[Primary, Copy, str]]:
    """Give a primary, its standby, and the path of a database that both have, with the schema."""
    names = STANDBY if commits == "synchronous" else ""
    with replicated(names, STANDBY) as (primary, (standby,), database):
        yield primary, standby, database


@contextmanager
def replicated(synchronous_names: str, *standbys: str) -> Iterator[tuple[Primary, list[Copy], str]]:
    """Give a primary whose commits wait for standbys, these, and the path of a database."""
    with ExitStack() as stack:
        primary = stack.enter_context(Primary())
        url = primary.create_database(f"windlass_{uuid4().hex[:12]}")
        migrate(url)
        copies = [stack.enter_context(Copy(primary, follows=True, name=name)) for name in standbys]
        until(lambda: _streaming(primary) == len(copies), "standbys that follow")
        if synchronous_names:
            primary.reload(synchronous_standby_names=synchronous_names)
            until(lambda: _streaming(primary, "sync", "quorum"), "a synchronous standby")
        yield primary, copies, urlsplit(url).path


def either(database: str, *ports: int) -> str:
    """Return the URL that leads to whichever server can be written to; see docs/failover.md."""
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return f"postgresql://postgres@{hosts}{database}?target_session_attrs=read-write"


def _streaming(primary: Server, *states: str) -> int:
    """Count the standbys that follow, or those in some states of synchrony."""
    wanted = "SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'"
    with primary.connection() as db:
        rows = db.execute(wanted).fetchall()
    return sum(not states or row[0] in states for row in rows)
