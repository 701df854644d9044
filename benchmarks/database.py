"""Owns the PostgreSQL of a race: a server that is as durable as it comes, and a database for each.

Nothing is tuned, for anybody: the server is what `initdb` makes of it.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.entrants import Entrant
from benchmarks.program import Program, ProgramFailed, running
from tests.support.postgres.cluster import Cluster
from tests.support.postgres.server import Server

_LOOK = 0.002
_PATIENCE = 240.0
_MUST_BE_ON = ("fsync", "synchronous_commit", "full_page_writes")
_numbers = itertools.count(1)


@contextmanager
def own_server(within: Path) -> Iterator[Arena]:
    """Run a server of our own, of the newest version that there is, for as long as this lasts."""
    directory = within / f"windlass-bench-{os.getpid()}"
    with Server(directory=directory, remove=[directory]) as server:
        yield Arena(server)


class Arena:
    """A running server, in which every contender gets a database of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def settings(self) -> str:
        """Tell the version, and what durability rests on.

        Raises:
            ProgramFailed: It is not durable, so that no figure would mean anything.
        """
        with self._cluster.connection() as db:
            found = {name: _answer(db, f"SHOW {name}") for name in (*_MUST_BE_ON, "shared_buffers")}
            version = _answer(db, "SHOW server_version")
        if off := [name for name in _MUST_BE_ON if found[name] != "on"]:
            raise ProgramFailed(f"the server is not durable: {', '.join(off)} must be on")
        return ", ".join([f"{version}", *(f"{name} {value}" for name, value in found.items())])

    @contextmanager
    def room(self, entrant: Entrant) -> Iterator[Room]:
        """Give a contender an empty database with its schema, for as long as this lasts."""
        name = f"race_{os.getpid()}_{next(_numbers)}"
        url = self._cluster.create_database(name)
        try:
            with running(entrant.command(url)) as program:
                program.ask("install")
            yield Room(entrant=entrant, url=url)
        finally:
            self._cluster.drop_database(name)


@dataclass(frozen=True, kw_only=True)
class Room:
    """One contender's database."""

    entrant: Entrant
    url: str

    @contextmanager
    def program(self) -> Iterator[Program]:
        """Run one of the contender's processes, connected, for as long as this lasts."""
        with running(self.entrant.command(self.url)) as program:
            program.ask("open")
            yield program
            if program.is_alive:
                program.ask("close")

    def tidy(self) -> None:
        """Leave nothing to do of what was done so far, so that no measure pays for another's."""
        with psycopg.connect(self.url, autocommit=True) as db:
            db.execute("VACUUM ANALYZE")
            db.execute("CHECKPOINT")

    def wait_until_empty(self, *, look: float = _LOOK) -> int:
        """Return the moment at which the queue's own tables show nothing left.

        Looking costs PostgreSQL something, so it is best begun when the last handler has started.
        """
        patience = time.monotonic() + _PATIENCE
        with psycopg.connect(self.url, autocommit=True) as db:
            while _answer(db, self.entrant.left):
                if time.monotonic() > patience:
                    raise ProgramFailed("its tables do not become empty")
                time.sleep(look)
            return time.monotonic_ns()

    @contextmanager
    def old_snapshot(self) -> Iterator[None]:
        """Hold a snapshot open, as a long report or a forgotten session does."""
        with psycopg.connect(self.url, autocommit=True) as db:
            db.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            db.execute("SELECT count(*) FROM pg_class")
            yield
            db.execute("COMMIT")


def _answer(db: psycopg.Connection[Any], query: str) -> Any:
    row = db.execute(query.encode()).fetchone()
    return row[0] if row else None
