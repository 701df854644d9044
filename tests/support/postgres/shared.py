"""Owns the sharing of one server by all processes of a test session.

The first who needs it starts it, and the last who leaves it has it ended, however they end.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.postgres.cluster import Cluster
from tests.support.postgres.server import FAST, Server, held

_started: list[Server] = []
"""Kept, because a process is warned of that is forgotten while it runs."""


@contextmanager
def joined(directory: Path, *, version: int) -> Iterator[Cluster]:
    """Share the fast server of a version with all who name the same directory."""
    record = directory / f"postgres-{version}.url"
    holders = directory / f"postgres-{version}.holders"
    with one_at_a_time(directory / f"postgres-{version}.lock"):
        # Waits for a guardian that has seen nobody and cleans up; the record is gone afterwards.
        hold = held(holders)
        try:
            url = record.read_text() if record.exists() else started(version, holders, record)
        except BaseException:
            hold.close()
            raise
    with hold:
        yield Cluster(url)


def started(version: int, holders: Path, record: Path) -> str:
    """Start a server that lives as long as somebody holds it, and return its URL."""
    server = Server(version=version, settings=FAST, holders=holders, remove=[record])
    try:
        server.start()
        record.write_text(server.url())
    finally:
        server.leave()
    _started.append(server)
    return server.url()


@contextmanager
def one_at_a_time(lock: Path) -> Iterator[None]:
    """Let one process after the other do something."""
    with lock.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
