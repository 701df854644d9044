"""Owns the bare statements as contenders: what Windlass tells PostgreSQL, and next to no Python.

They tell how much of the time PostgreSQL takes, and so how much Windlass adds. The statements, and
how values are bound to them, are the store's own; there are no handlers, and no decoded jobs.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from datetime import timedelta
from typing import Any, ClassVar, cast

import psycopg

from benchmarks.peer import Starts
from benchmarks.peers.windlass_postgres import WindlassPostgres
from windlass.core.job import Ask, Claim, Floor, Lane, WorkerInfo
from windlass.core.settle import Transition
from windlass.core.states import State
from windlass.store.postgres import PostgresStore
from windlass.store.postgres.rows import complete_values
from windlass.store.postgres.work import claim_values

_BATCH = 500
_PAUSE = 0.002
_WORKER = WorkerInfo(
    id="bare",
    name="bare",
    host="",
    pid=os.getpid(),
    release="",
    lease=timedelta(hours=1),
    slots=_BATCH,
)
_INSERT = b"""
    INSERT INTO windlass.jobs (id, kind, payload)
    SELECT id, 'noop', '{}' FROM unnest(%s::uuid[]) AS id
"""
_COPY = "COPY windlass.jobs (id, kind, payload) FROM STDIN"


class BareClaims(WindlassPostgres):
    """Claims and acknowledges by the store's statements, as its line sends them: both together."""

    name: ClassVar[str] = "bare statements"
    settings: ClassVar[str] = f"the store's claim and complete, one connection, {_BATCH} at a time"

    def __init__(self, url: str, starts: Starts) -> None:
        super().__init__(url, starts)
        self._url = url
        self._starts = starts

    async def work(self, slots: int | None, *, idle: bool) -> None:
        """Claim and acknowledge, in a thread, until cancelled."""
        del slots, idle
        store = cast("PostgresStore", self._app.store)
        await store.register(_WORKER)
        ended = threading.Event()
        loop = asyncio.get_running_loop()
        working = loop.run_in_executor(None, self._work, store.statements, ended, loop)
        try:
            await asyncio.shield(working)
        finally:
            ended.set()
            await working

    def _work(self, sql: Any, ended: threading.Event, loop: asyncio.AbstractEventLoop) -> None:
        done: list[Transition] = []
        floor: Floor | None = None
        with psycopg.connect(self._url, autocommit=True) as db:
            while not ended.is_set():
                ask = Ask(lane=Lane("default", "noop"), count=_BATCH, floor=floor)
                values = claim_values(Claim(asks=(ask,)), _WORKER.id, 1)
                cursor = db.cursor(binary=True)
                with db.pipeline():
                    if done:
                        db.execute(sql["complete"], complete_values(done))
                    cursor.execute(sql["claim"], (*values, "f" if done else "t"))
                rows = cursor.fetchall()
                if not rows and not done:
                    time.sleep(_PAUSE)
                names = [column.name for column in cursor.description or ()]
                id_, due_at, seq = (names.index(name) for name in ("id", "due_at", "seq"))
                done = [Transition(id=row[id_], token=1, state=State.COMPLETED) for row in rows]
                if rows:
                    floor = max(Floor(row[due_at], row[seq]) for row in rows)
                    self._note(len(rows), loop)

    def _note(self, count: int, loop: asyncio.AbstractEventLoop) -> None:
        starts = self._starts
        starts.noted += [time.monotonic_ns()] * count
        if len(starts.noted) >= starts.expected:
            loop.call_soon_threadsafe(starts.reached.set)


class BareInsert(WindlassPostgres):
    """Fills the table by an INSERT of many rows."""

    name: ClassVar[str] = "bare INSERT of many rows"

    def __init__(self, url: str, starts: Starts) -> None:
        super().__init__(url, starts)
        self._db = psycopg.connect(url, autocommit=True)

    async def enqueue_bulk(self, count: int, *, kind: str, priority: int) -> None:
        """Insert as many no-ops as asked for."""
        del kind, priority
        self._db.execute(_INSERT, ([self._app.ids.next() for _ in range(count)],))

    async def close(self) -> None:
        """Let go of the connection."""
        self._db.close()


class BareCopy(BareInsert):
    """Fills the table by COPY."""

    name: ClassVar[str] = "bare COPY"

    async def enqueue_bulk(self, count: int, *, kind: str, priority: int) -> None:
        """Copy as many no-ops as asked for."""
        del kind, priority
        rows = "".join([f"{self._app.ids.next()}\tnoop\t{{}}\n" for _ in range(count)])
        with self._db.cursor() as cursor, cursor.copy(_COPY) as copy:
            copy.write(rows)
