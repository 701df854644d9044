"""Owns the Redis of a race: a server for each contender and round, and what it tells of itself.

Nothing is tuned, for anybody. By default nothing is persisted either, which is what the peers'
own benchmarks do; the races about durability say what is.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hiredis

from benchmarks.entrants import Entrant
from benchmarks.program import Program, ProgramFailed, running
from tests.support.redis_server import RedisServer, binary

_LOOK = 0.002
_PATIENCE = 240.0


@contextmanager
def arena(within: Path, server: Path | None = None) -> Iterator[Arena]:
    """Make room for servers on a disk, for as long as this lasts."""
    directory = Path(tempfile.mkdtemp(prefix="windlass-bench-", dir=within))
    try:
        yield Arena(directory, server)
    finally:
        shutil.rmtree(directory)


class Arena:
    """Where every contender gets a server of its own, fresh and empty."""

    def __init__(self, directory: Path, server: Path | None = None) -> None:
        self._directory = directory
        self._server = server or binary()
        self._numbers = itertools.count(1)

    def settings(self) -> str:
        """Tell which server it is, and where it is from."""
        with self._running() as server:
            found = info(server, "server")
        name = "Valkey" if "valkey_version" in found else "Redis"
        version = found.get("valkey_version") or found["redis_version"]
        return f"{name} {version} ({self._server}), a fresh one for each contender and round"

    @contextmanager
    def room(self, entrant: Entrant, **config: Any) -> Iterator[Room]:
        """Give a contender a server with these settings, for as long as this lasts."""
        with self._running(**config) as server:
            room = Room(entrant=entrant, server=server)
            with running(entrant.command(server.url)) as program:
                program.ask("install")
            yield room

    @contextmanager
    def _running(self, **config: Any) -> Iterator[RedisServer]:
        directory = self._directory / str(next(self._numbers))
        with RedisServer(directory, server=self._server, **config) as server:
            yield server
        shutil.rmtree(directory)


@dataclass(frozen=True, kw_only=True)
class Room:
    """One contender's server."""

    entrant: Entrant
    server: RedisServer

    @contextmanager
    def program(self) -> Iterator[Program]:
        """Run one of the contender's processes, connected, for as long as this lasts."""
        with running(self.entrant.command(self.server.url)) as program:
            program.ask("open")
            yield program
            if program.is_alive:
                program.ask("close")

    def tidy(self) -> None:
        """Wait until no file is being rewritten in the background."""
        busy = ("aof_rewrite_in_progress", "rdb_bgsave_in_progress")
        _wait(lambda: all(info(self.server, "persistence")[name] == "0" for name in busy))

    def wait_until_empty(self, *, patience: float = _PATIENCE) -> int:
        """Return the moment at which the queue's own keys show nothing left."""
        with self.server.client() as run:
            _wait(lambda: not _eval(run, self.entrant.left), patience)
        return time.monotonic_ns()

    def is_empty(self, run: Callable[..., Any]) -> bool:
        """Return whether the queue's own keys show nothing left, by a client that is connected."""
        return not _eval(run, self.entrant.left)


def info(server: RedisServer, section: str) -> dict[str, str]:
    """Return a section of what the server tells of itself."""
    lines = server.call("INFO", section).decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _eval(run: Callable[..., Any], script: str) -> Any:
    try:
        return run("EVAL", script, 0)
    except hiredis.ReplyError as error:
        raise ProgramFailed(f"its keys are not what they should be: {error}") from error


def _wait(condition: Callable[[], bool], patience: float = _PATIENCE) -> None:
    until = time.monotonic() + patience
    while not condition():
        if time.monotonic() > until:
            raise ProgramFailed(f"its keys do not become empty in {patience:g} s")
        time.sleep(_LOOK)
