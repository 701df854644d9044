"""Owns the bare statements as contenders: what Windlass tells PostgreSQL, and next to no Python.

They tell how much of the time PostgreSQL takes, and so how much Windlass adds. The statements, and
how values are bound to them, are the store's own; there are no handlers, and no decoded jobs.
"""

from __future__ import annotations

import asyncio
import os
import time
from datetime import timedelta
from typing import ClassVar, cast
from uuid import UUID

import psycopg

from benchmarks.peer import Starts
from benchmarks.peers.windlass_postgres import WindlassPostgres
from windlass.core.claims.lanes import Ask, Claim, Floor
from windlass.core.jobs.job import Lane
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import State
from windlass.core.workers import WorkerInfo
from windlass.store.postgres import PostgresStore
from windlass.store.postgres.claim_and_settle import claim_values
from windlass.store.postgres.connections.connection import LoopConnection, adapt
from windlass.store.postgres.connections.pipeline import Answer, Query, round_trip
from windlass.store.postgres.parameters import complete_values
from windlass.store.postgres.records import Statements
from windlass.store.postgres.rows import instant

_BATCH = 1_000
_TOKEN = 1
_ID, _DUE_AT, _SEQ = 1, 3, -1
"""Where these stand in a row of `claim`."""
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
    """Claims and acknowledges by the store's statements, as its pipeline sends them.

    Both go together, and what one round trip brought is read while the server works at the next.
    """

    name: ClassVar[str] = "bare statements"
    settings: ClassVar[str] = f"the store's claim and complete, one connection, {_BATCH} at a time"

    def __init__(self, url: str, starts: Starts) -> None:
        super().__init__(url, starts)
        self._url = url
        self._starts = starts
        self._arrived: Answer | None = None
        self._done: list[UUID] = []
        self._floor: Floor | None = None

    async def work(self, slots: int | None, *, idle: bool) -> None:
        """Claim and acknowledge until cancelled."""
        del slots, idle
        store = cast("PostgresStore", self._app.store)
        await store.register(_WORKER)
        wire = await LoopConnection.open(self._url)
        adapt(wire)
        try:
            while True:
                queries = self._queries(store.sql)
                *_, self._arrived = await round_trip(wire, queries, self._read)
                if len(queries) == 1 and not self._done:
                    await asyncio.sleep(_PAUSE)
        finally:
            await wire.close()

    def _queries(self, sql: Statements) -> list[Query]:
        done, self._done = self._done, []
        ask = Ask(lane=Lane("default", "noop"), count=_BATCH, floor=self._floor)
        values = claim_values(Claim(asks=(ask,)), _WORKER.id, _TOKEN)
        claim = Query(sql["claim"], (*values, "f" if done else "t"))
        if not done:
            return [claim]
        moves = [Transition(id=job, token=_TOKEN, state=State.COMPLETED) for job in done]
        return [Query(sql["complete"], complete_values(moves)), claim]

    def _read(self) -> None:
        """Read the answers of the round trip before this one."""
        arrived, self._arrived = self._arrived, None
        rows = [] if arrived is None else arrived.rows()
        if rows:
            self._done += [row[_ID] for row in rows]
            latest = max((row[_DUE_AT], row[_SEQ]) for row in rows)
            self._floor = Floor(instant(latest[0]), latest[1])
            self._starts.noted += [time.monotonic_ns()] * len(rows)
            if len(self._starts.noted) >= self._starts.expected:
                self._starts.reached.set()


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
