"""An app's connections to PostgreSQL: how many, how old, in which process and loop, and none."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tests.app.named_connections import connections, left_open, named
from tests.support.app_on_store import STORES, Bed, impatient, in_state, serving, until
from tests.support.clocked_stores import migrate
from tests.support.network_proxy import Proxy
from tests.support.postgres.server import FAST, Server
from windlass import (
    Context,
    SchemaMismatch,
    State,
    StoreRefused,
    StoreUnavailable,
    SyncContext,
    Windlass,
)
from windlass.app import Handler
from windlass.store.postgres.connections import pool

pytestmark = pytest.mark.stores(*STORES)
on_postgres = pytest.mark.parametrize("bed", ["postgres"], indirect=True)
Note = Handler[[int], None, [int], None]


def note_at(url: str, **settings: Any) -> tuple[Windlass, Note]:
    app = Windlass(url, **settings)

    @app.job
    def note(n: int) -> None: ...

    return app, note


# -- processes -------------------------------------------------------------------------------------

FORKS = """
import os, sys
from windlass import Windlass

app = Windlass(sys.argv[1])

@app.job
async def note(n: int) -> None: ...

note.enqueue(0)
handle = note.enqueue(1)
assert handle.state() == "pending"
child = os.fork()
for n in range(20):
    note.enqueue(n)
    note.using(unique=f"{n}").enqueue(n)
assert handle.state() == "pending"
app.enqueue_many([note.draft(n) for n in range(30)])
app.close()
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
note.enqueue(2)
app.close()
"""


@on_postgres
def test_parent_and_child_both_enqueue_after_a_fork(bed: Bed) -> None:
    """Prevents: two processes that speak on one connection, and corrupt it for both."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORKS, named(bed.url)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    with psycopg.connect(bed.url) as db:
        row = db.execute("SELECT count(*) FROM windlass.jobs").fetchone()
    assert row == (2 + 2 * 20 + 20 + 2 * 30 + 1,)
    assert left_open(bed.url) == []


@on_postgres
def test_event_loops_one_after_another_leave_no_connections(bed: Bed) -> None:
    app, note = note_at(named(bed.url))

    async def main() -> None:
        handle = await note.aenqueue(1)
        await handle.ainfo()

    for _ in range(3):
        asyncio.run(main())
        gc.collect()
        assert left_open(bed.url, most=1) == []
    note.enqueue(1)
    app.close()
    gc.collect()
    assert left_open(bed.url) == []
    # And it can be used again.
    note.enqueue(2)
    asyncio.run(main())
    app.close()
    assert left_open(bed.url) == []


@on_postgres
def test_a_loop_that_ends_with_its_worker_leaves_no_connections(bed: Bed) -> None:
    app, note = note_at(named(bed.url))

    async def main() -> None:
        async with serving(app):
            await in_state(await note.aenqueue(1), State.COMPLETED)

    for _ in range(2):
        asyncio.run(main())
    app.close()
    gc.collect()
    assert left_open(bed.url) == []


@on_postgres
def test_a_worker_opens_four_connections_besides_its_pools(bed: Bed) -> None:
    """The hot line, the chores, the listener and the heart; nothing that users do takes them.

    When users hold both pools, there are a few to spare for the worker's other duties.
    """
    app = Windlass(named(bed.url), pool_size=1, pool_overflow=1, threads=4)
    go, in_loop = asyncio.Event(), 0
    thread_go = threading.Event()

    @app.job
    async def in_a_loop(ctx: Context) -> None:
        nonlocal in_loop
        async with ctx.transaction() as conn:
            await conn.execute("SELECT 1")
            in_loop += 1
            await go.wait()

    @app.job
    def in_a_thread(ctx: SyncContext) -> None:
        with ctx.transaction() as conn:
            conn.execute("SELECT 1")
            thread_go.wait(30)

    @app.job
    async def note() -> None: ...

    async def main() -> None:
        async with serving(app, lease="6s") as worker:
            await note.aenqueue()
            await until(lambda: worker.processed == 1)
            await until(lambda: 4 <= len(connections(bed.url)) <= 5)
            with psycopg.connect(bed.url) as db:
                for job in [in_a_loop] * 4 + [in_a_thread] * 4:
                    job.using(tx=db).enqueue()
            await until(
                lambda: 4 + 2 + 2 <= len(connections(bed.url)) <= 4 + 2 + 2 + pool.SPARE_CONNECTIONS
            )
            with psycopg.connect(bed.url) as db:
                note.using(tx=db).enqueue()
            await until(lambda: worker.processed == 2)  # Although both pools are used up.
            assert 4 + 2 + 2 <= len(connections(bed.url)) <= 4 + 2 + 2 + pool.SPARE_CONNECTIONS
            go.set()
            thread_go.set()
            await until(lambda: worker.processed == 10)
        await app.aclose()

    asyncio.run(main())
    assert left_open(bed.url) == []


# -- none ------------------------------------------------------------------------------------------


def refusals(url: str, **settings: Any) -> Iterator[tuple[str, Callable[[], object]]]:
    """Give every way in which an app comes to its store."""
    app, note = note_at(url, enqueue_timeout="20s", **settings)

    async def alone(work: Callable[[], Any]) -> None:
        try:
            await work()
        finally:
            await app.aclose()

    yield "enqueue", lambda: note.enqueue(1)
    yield "enqueue_many", lambda: app.enqueue_many(note.draft(n) for n in range(50))
    yield "aenqueue", lambda: asyncio.run(alone(lambda: note.aenqueue(1)))
    yield "run_worker", lambda: asyncio.run(alone(app.arun_worker))
    app.close()


def refused(url: str, error: type[Exception], match: str, **settings: Any) -> None:
    for name, call in refusals(url, **settings):
        began = time.monotonic()
        with pytest.raises(error, match=match):
            call()
        assert time.monotonic() - began < 30, name


@on_postgres
def test_a_database_without_the_schema_names_the_command(bed: Bed) -> None:
    refused(bed.url, SchemaMismatch, "run: windlass migrate", schema="nowhere")


def test_a_server_that_is_away_or_says_no_is_unavailable_in_bounded_time() -> None:
    with Server(settings=FAST) as server:
        url = server.create_database("shop")
        migrate(url)
        refused(url.replace("/shop", "/shoe"), StoreRefused, 'database "shoe" does not exist')
        refused(url.replace("postgres@", "bob@"), StoreRefused, 'role "bob" does not exist')
        with psycopg.connect(url, autocommit=True) as db:
            db.execute("ALTER DATABASE shop CONNECTION LIMIT 0")
            db.execute("CREATE ROLE guest LOGIN")
        crowded = url.replace("postgres@", "guest@")
        refused(crowded, StoreUnavailable, "too many connections.*; raise CONNECTION LIMIT")
        _demand_passwords(server)
        wrong = url.replace("postgres@", "postgres:wrong@")
        refused(wrong, StoreRefused, "password authentication failed")
        with pytest.raises(StoreUnavailable) as caught:
            note_at(wrong)[1].enqueue(1)
        assert "wrong" not in str(caught.value)
        right = url.replace("postgres@", "postgres:secret@")
        app, note = note_at(right)
        note.enqueue(1)
        server.stop()
        refused(right, StoreUnavailable, "onnection")
        with impatient(app), pytest.raises(StoreUnavailable):
            note.enqueue(1)
        server.start()
        note.enqueue(1)
        app.close()


def _demand_passwords(server: Server) -> None:
    with server.connection() as db:
        db.execute("ALTER ROLE postgres PASSWORD 'secret'")
        (server.directory / "data" / "pg_hba.conf").write_text(
            "host all all 127.0.0.1/32 scram-sha-256\n"
        )
        db.execute("SELECT pg_reload_conf()")


@on_postgres
def test_a_network_that_swallows_everything_is_noticed_in_bounded_time(bed: Bed) -> None:
    with Proxy(bed.url) as proxy:
        app, note = note_at(proxy.url(bed.url))
        note.enqueue(1)
        asyncio.run(note.aenqueue(1))
        proxy.black_hole()
        with impatient(app):
            for _ in range(2):  # By the connections that were open, and then by new ones.
                began = time.monotonic()
                with pytest.raises(StoreUnavailable):
                    note.enqueue(2)
                with pytest.raises(StoreUnavailable):
                    asyncio.run(note.aenqueue(2))
                assert time.monotonic() - began < 30
        proxy.passing()
        note.enqueue(3)
        asyncio.run(note.aenqueue(3))
        app.close()
