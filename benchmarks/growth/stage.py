"""Owns a database of a run: its app, its statements, and the time that something takes there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg

from benchmarks.capacity import proc
from benchmarks.growth.fill import KINDS, Sizes
from windlass import Windlass

QUEUE = "measured"
"""The queue of jobs that a measure adds for itself."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What something took, once."""

    seconds: float
    cpu: float
    """CPU seconds of the process that did it, and of all processes of the server."""
    server: float
    """Those of the server alone."""


@dataclass
class Starts:
    """When handlers started, and how many starts are waited for."""

    at: list[float] = field(default_factory=list)
    wanted: int = 0
    reached: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self) -> None:
        """Record a start."""
        self.at.append(time.perf_counter())
        if len(self.at) == self.wanted:
            self.reached.set()

    def expect(self, number: int) -> None:
        """Forget earlier starts, and wait for so many."""
        self.at.clear()
        self.wanted = number
        self.reached.clear()


@dataclass(frozen=True, kw_only=True)
class Clock:
    """How much time had passed, and CPU time was spent, at one moment."""

    seconds: float
    own: float
    server: float

    def until(self, later: Clock) -> Sample:
        """Return what was spent between the two."""
        server = later.server - self.server
        return Sample(
            seconds=later.seconds - self.seconds,
            cpu=later.own - self.own + server,
            server=server,
        )


class Stage:
    """A database with jobs, and an app that has handlers for all of them."""

    def __init__(self, url: str, server: int, sizes: Sizes) -> None:
        self.url = url
        self.sizes = sizes
        self.starts = Starts()
        self.app = Windlass(url, log_level="warning")
        self.noop = self.app.job(name="noop", queue=QUEUE)(self._handler())
        for number in range(KINDS):
            self.app.job(name=f"kind_{number}")(self._handler())
        self._server = server

    def _handler(self) -> Callable[..., Awaitable[None]]:
        async def handler(order: int = 0, customer: object = None, note: str = "") -> None:
            del order, customer, note
            self.starts.note()

        return handler

    def sql(self, *statements: str) -> None:
        """Execute statements, each by itself."""
        with psycopg.connect(self.url, autocommit=True) as db:
            for each in statements:
                db.execute(each.encode())

    def value(self, query: str) -> Any:
        """Return the first value of an answer."""
        with psycopg.connect(self.url, autocommit=True) as db:
            row = db.execute(query.encode()).fetchone()
        return row[0] if row else None

    @property
    def size(self) -> str:
        """The size of the database, as PostgreSQL writes it."""
        return str(self.value("SELECT pg_size_pretty(pg_database_size(current_database()))"))

    def tidy(self) -> None:
        """Vacuum what changes, so that no measure pays for another's; autovacuum is off."""
        self.sql("VACUUM windlass.jobs", "VACUUM windlass.records", "CHECKPOINT")

    def server_cpu(self) -> float:
        """Return the CPU seconds of all processes of the server so far."""
        return proc.cpu_seconds(proc.family(self._server))

    def clock(self) -> Clock:
        """Return what has been spent so far, by this process and the server."""
        return Clock(seconds=time.perf_counter(), own=time.process_time(), server=self.server_cpu())

    async def timed(self, work: Callable[[], Awaitable[object]]) -> Sample:
        """Do something, and return what it took."""
        before = self.clock()
        await work()
        return before.until(self.clock())


Measure = Callable[[Stage], Awaitable[Sample]]
