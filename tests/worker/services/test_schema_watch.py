"""A worker on whose store a newer release is let loose: it leaves if it must, and only then."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing

import psycopg
import pytest

from tests.support.app_on_store import (
    QUICK,
    STORES,
    Bed,
    Through,
    in_state,
    log_lines,
    serving,
    until,
)
from windlass import State
from windlass.store import Schema
from windlass.store.postgres.migrate import WANTED
from windlass.store.sqlite.connections.file import SCHEMA
from windlass.worker.services import housekeeping

pytestmark = pytest.mark.stores(*STORES)

LATER = (
    "INSERT INTO windlass.migrations (number, name, oldest, oldest_release, release) "
    "VALUES (%(number)s, 'later', %(oldest)s, '9', '9')"
)
on_durable_stores = pytest.mark.parametrize("bed", ["sqlite", "postgres"], indirect=True)
on_postgres = pytest.mark.parametrize("bed", ["postgres"], indirect=True)


class Looked(Through):
    """A store that counts how often somebody has looked at its schema."""

    looks = 0

    async def schema(self) -> Schema:
        self.looks += 1
        return await self.inner.schema()


@pytest.fixture(autouse=True)
def looking_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers look often; a minute is long in a test."""
    monkeypatch.setattr(housekeeping, "CHECK_SECONDS", 0.02)


def say(bed: Bed, sql: str, **values: int) -> None:
    with psycopg.connect(bed.url) as db:
        db.execute(sql.encode(), values)


def outgrow(bed: Bed) -> None:
    """Have a schema that serves only releases newer than this one."""
    if bed.kind == "postgres":
        say(bed, LATER, number=WANTED + 1, oldest=WANTED + 1)
        return
    with closing(sqlite3.connect(bed.path)) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA + 1}")


@on_durable_stores
def test_a_worker_drains_when_the_schema_is_for_newer_releases_only(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    """Prevents: a worker that goes on for days where its statements may do harm."""
    app = bed.app()
    go = asyncio.Event()

    @app.job
    async def hold() -> str:
        await go.wait()
        return "done"

    async def main() -> None:
        worker = app.worker(**QUICK)
        task = asyncio.create_task(worker.run())
        handle = await hold.aenqueue()
        await in_state(handle, State.RUNNING)
        await asyncio.to_thread(outgrow, bed)
        await until(lambda: worker._state.draining)
        go.set()
        await asyncio.wait_for(task, 60)
        assert await handle.aresult() == "done", "what runs has its time to end"

    asyncio.run(main())
    (line,) = log_lines(caplog, "schema.outgrown")
    assert "upgrade windlass here" in line["remedy"]


@on_postgres
@pytest.mark.parametrize("sql", [LATER, "DELETE FROM windlass.migrations"], ids=["serves", "gone"])
def test_a_worker_goes_on_where_it_may(bed: Bed, sql: str) -> None:
    """Prevents: a migration, or a table that is being restored, that stops a whole fleet."""
    store = Looked(bed.store())
    app = bed.app(store=store)

    @app.job
    async def work() -> str:
        return "done"

    async def main() -> None:
        async with serving(app) as worker:
            await until(lambda: store.looks > 0)
            await asyncio.to_thread(say, bed, sql, number=WANTED + 1, oldest=WANTED)
            seen = store.looks
            await until(lambda: store.looks > seen + 2)
            assert await (await work.aenqueue()).aresult(timeout="60s") == "done"
            assert not worker._state.stopping.is_set()

    asyncio.run(main())
