"""Owns what jobs and processes take of a Redis: memory, its append-only file, connections."""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.capacity import proc
from benchmarks.capacity.crew import Crew, crew
from benchmarks.capacity.footprint import CREWS, PRODUCERS, SETTLING
from benchmarks.capacity.sizes import Survey
from benchmarks.capacity.space import noise
from benchmarks.capacity.table import Cell, Table
from benchmarks.capacity.yards import fill, wait_for
from tests.support.redis_server import RedisServer
from windlass import State, Windlass
from windlass.core.stats.depths import QueueCount

_LOOK = 0.005
_SELDOM = 0.2
_OPEN = (State.PENDING, State.RUNNING, State.SCHEDULED)
_OF_SPACE = (
    "payload",
    "jobs",
    "waiting, B/job",
    "finished, B/job",
    "append-only file: enqueue, B/job",
    "append-only file: run, B/job",
)
_OF_CONNECTIONS = ("who", "connections, by `CLIENT LIST`", "at most", "of which a supervisor has")


class RedisYard:
    """A server of its own, which can be filled and looked at."""

    def __init__(self, server: RedisServer) -> None:
        self.url = server.url
        self._server = server

    def info(self, name: str) -> int:
        """Return a figure of INFO."""
        pairs = (line.partition(":") for line in self._server.call("INFO").decode().splitlines())
        return int({key: value for key, _, value in pairs}[name])

    def connections(self) -> int:
        """How many connections Windlass has."""
        lines = self._server.call("CLIENT", "LIST").decode().splitlines()
        return sum("name=windlass" in line for line in lines)

    def connections_of(self, pid: int) -> int:
        """How many of them a process has."""
        return proc.connections(pid, self._server.port)

    def is_empty(self) -> bool:
        """Whether no job waits or runs."""
        return not any(each.state in _OPEN for each in asyncio.run(self._counts()))

    def workers(self) -> int:
        """How many workers are registered."""
        return int(self._server.call("SCARD", "{windlass}:workers"))

    async def _counts(self) -> list[QueueCount]:
        app = Windlass(self.url)
        try:
            return list(await app.store.counts())
        finally:
            await app.aclose()


@contextmanager
def redis_yard() -> Iterator[RedisYard]:
    """Start an empty server that writes every change to its append-only file, and never less."""
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp") as directory,
        RedisServer(Path(directory), appendonly="yes", auto_aof_rewrite_percentage=0) as server,
    ):
        yield RedisYard(server)


def parts(survey: Survey) -> list[Table]:
    """Measure all that is told of Redis."""
    return [*space(survey), *connections(survey)]


def space(survey: Survey) -> list[Table]:
    """Enqueue and run jobs with larger and larger payloads, and weigh the server each time."""
    rows: list[list[Cell]] = []
    for size in survey.sizes.payloads:
        survey.tell(f"Redis, payloads of {size:,} bytes")
        jobs = max(min(survey.sizes.many, survey.sizes.payload_bytes // size), 1)
        with redis_yard() as yard:
            fill(yard, 1, "carry", {"text": ""})  # Makes the layout, and loads the scripts.
            empty, log = yard.info("used_memory"), yard.info("aof_current_size")
            fill(yard, jobs, "carry", {"text": noise(size)})
            waiting, filled = yard.info("used_memory"), yard.info("aof_current_size")
            with crew(yard.url) as it:
                wait_for("the last job", partial(_ended, yard, it), _SELDOM)
            finished, ran = yard.info("used_memory"), yard.info("aof_current_size")
        figures = (waiting - empty, finished - empty, filled - log, ran - filled)
        rows.append([f"{size:,} B", jobs, *(figure / jobs for figure in figures)])
    return [Table(name="redis_space", head=_OF_SPACE, rows=rows)]


def connections(survey: Survey) -> list[Table]:
    """Count the connections of crews and producers, at rest and at most."""
    rows: list[list[Cell]] = []
    for shown, processes, kind in CREWS:
        survey.tell(f"Redis, connections, {shown}")
        with redis_yard() as yard, crew(yard.url, processes=processes) as it:
            wait_for("workers", partial(_serve, yard, processes))
            with _most(yard) as most:
                time.sleep(SETTLING)
                if kind:
                    fill(yard, survey.sizes.jobs // 10, kind)
                    wait_for("the last job", partial(_ended, yard, it), _SELDOM)
            rows.append([shown, yard.connections(), most(), yard.connections_of(it.supervisor)])
    for shown, produce in PRODUCERS:
        survey.tell(f"Redis, connections, {shown}")
        with redis_yard() as yard, _most(yard) as most, asyncio.Runner() as runner:
            app = Windlass(yard.url)
            produce(app, runner)
            now = yard.connections()
            rows.append([shown, now, max(now, most()), None])
            runner.run(app.aclose())
    return [Table(name="redis_connections", head=_OF_CONNECTIONS, rows=rows)]


def _serve(yard: RedisYard, processes: int) -> bool:
    return yard.workers() >= processes


def _ended(yard: RedisYard, it: Crew) -> bool:
    it.check()
    return yard.is_empty()


@contextmanager
def _most(yard: RedisYard) -> Iterator[Callable[[], int]]:
    """Watch the connections; what is given tells the most that there were."""
    found = [0]
    enough = threading.Event()

    def keep_looking() -> None:
        while not enough.wait(_LOOK):
            found[0] = max(found[0], yard.connections())

    looker = threading.Thread(target=keep_looking, daemon=True)
    looker.start()
    try:
        yield lambda: found[0]
    finally:
        enough.set()
        looker.join()
