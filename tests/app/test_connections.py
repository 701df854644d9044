"""An app's connections to PostgreSQL: how many, how old, in which process and loop, and none."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

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
from windlass.settings import Settings
from windlass.store.postgres import PostgresStore
from windlass.store.postgres.connections import pool
from windlass.store.postgres.connections.pool import PoolSize

pytestmark = pytest.mark.stores(*STORES)

on_postgres = pytest.mark.parametrize("bed", ["postgres"], indirect=True)
NAME = "count-me"
Note = Handler[[int], None, [int], None]


def named(url: str) -> str:
    """Return a URL whose connections can be told from all others."""
    return f"{url}?application_name={NAME}"


def connections(url: str) -> list[int]:
    """Return the server's processes for the connections of a named URL."""
    with psycopg.connect(url) as db:
        rows = db.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name = %s ORDER BY pid",
            [NAME],
        )
        return [row[0] for row in rows]


def end_connections(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        for pid in connections(url):
            db.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])


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
    assert connections(bed.url) == []


@on_postgres
def test_event_loops_one_after_another_leave_no_connections(bed: Bed) -> None:
    app, note = note_at(named(bed.url))

    async def main() -> None:
        handle = await note.aenqueue(1)
        await handle.ainfo()

    for _ in range(3):
        asyncio.run(main())
        gc.collect()
        assert len(connections(bed.url)) <= 1
    note.enqueue(1)
    app.close()
    gc.collect()
    assert connections(bed.url) == []
    # And it can be used again.
    note.enqueue(2)
    asyncio.run(main())
    app.close()
    assert connections(bed.url) == []


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
    assert connections(bed.url) == []


# -- how many --------------------------------------------------------------------------------------


def test_ten_connections_are_kept_and_twenty_more_opened_unless_it_is_set() -> None:
    settings = Settings()
    assert (settings.pool_size, settings.pool_overflow) == (10, 20)
    assert settings.pool_recycle.total_seconds() == 3600
    assert PoolSize() == PoolSize(keep=10, more=20, recycle=3600)


@on_postgres
def test_a_pool_for_threads_opens_what_it_may_and_keeps_what_it_should(bed: Bed) -> None:
    store = PostgresStore(named(bed.url), limits=PoolSize(keep=2, more=1))
    with ExitStack() as held:
        for _ in range(3):
            held.enter_context(store._pool.connection(10))
        began = time.monotonic()
        with (
            pytest.raises(StoreUnavailable, match=r"all 3 .* in use; .* raise WINDLASS_POOL_SIZE"),
            store._pool.connection(0.2),
        ):
            pass
        assert time.monotonic() - began < 30
        assert len(connections(bed.url)) == 3
    assert store._pool.open == 2
    asyncio.run(store.close())
    assert store._pool.open == 0


@on_postgres
def test_a_pool_for_coroutines_opens_what_it_may_and_keeps_what_it_should(bed: Bed) -> None:
    store = PostgresStore(named(bed.url), limits=PoolSize(keep=2, more=1))

    async def hold(go: asyncio.Event) -> None:
        async with store._here().pool.connection(10):
            await go.wait()

    async def main() -> None:
        go = asyncio.Event()
        holders = [asyncio.create_task(hold(go)) for _ in range(3)]
        await until(lambda: len(connections(bed.url)) == 3)
        with pytest.raises(StoreUnavailable, match=r"all 3 .* in use; .* raise WINDLASS_POOL_SIZE"):
            await store._here().pool.connection(0.1).__aenter__()
        go.set()
        await asyncio.gather(*holders)
        assert store._here().pool.open == 2
        await store.close()

    asyncio.run(main())


@on_postgres
def test_a_duty_is_done_though_users_hold_the_pool_and_no_more_than_a_few_at_once(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "SPARE_CONNECTIONS", 2)
    store = PostgresStore(named(bed.url), limits=PoolSize(keep=1, more=0))

    async def main() -> None:
        lent = store._here().pool
        async with lent.connection(10):
            with pytest.raises(StoreUnavailable):
                await lent.connection(0.1).__aenter__()
            assert await store.workers() == []
            assert len(connections(bed.url)) == 2, "it is kept for the next"
            async with lent.connection(1, duty=True), lent.connection(1, duty=True):
                with pytest.raises(StoreUnavailable, match=r"all 1 .* in use"):
                    await lent.connection(0.1, duty=True).__aenter__()
                assert lent.open == 3
        async with lent.connection(1, duty=True), lent.connection(1, duty=True):
            assert lent.open == 2
        await store.close()

    asyncio.run(main())
    assert connections(bed.url) == []


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
        async with serving(app, lease="1s") as worker:
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
    assert connections(bed.url) == []


# -- how old ---------------------------------------------------------------------------------------


@pytest.fixture
def store(bed: Bed) -> Iterator[PostgresStore]:
    made = PostgresStore(named(bed.url))
    yield made
    asyncio.run(made.close())


@on_postgres
def test_a_connection_that_the_server_has_closed_is_not_given_out(
    bed: Bed, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_FRESH_SECONDS", 0.0)
    with store._pool.connection(10), store._pool.connection(10):
        pass
    end_connections(bed.url)
    with store._pool.connection(10) as wire:
        assert wire.execute("SELECT 1").fetchone() == (1,)
        assert store._pool.open == 1

    async def main() -> None:
        lent = store._here().pool
        async with lent.connection(10), lent.connection(10):
            pass
        end_connections(bed.url)
        async with lent.connection(10) as wire:
            assert await (await wire.execute("SELECT 1")).fetchone() == (1,)
            assert lent.open == 1
        await store.close()

    asyncio.run(main())


@on_postgres
def test_a_connection_that_is_old_is_replaced(bed: Bed) -> None:
    store = PostgresStore(bed.url, limits=PoolSize(recycle=100))
    with store._pool.connection(10) as wire:
        first = wire.info.backend_pid
    with store._pool.connection(10) as wire:
        assert wire.info.backend_pid == first
        wire.made_at -= 100
    with store._pool.connection(10) as wire:
        assert wire.info.backend_pid != first
    assert store._pool.open == 1
    asyncio.run(store.close())


@on_postgres
def test_a_statement_is_prepared_once_and_a_session_that_forgot_it_is_replaced(bed: Bed) -> None:
    """Prevents: a handler that says DEALLOCATE ALL breaks whoever borrows the connection next."""
    app = bed.app()

    @app.job
    async def work() -> None: ...

    store = app.store
    assert isinstance(store, PostgresStore)

    def prepared() -> list[str]:
        with store._pool.connection(10) as wire:
            names = wire.execute("SELECT name FROM pg_prepared_statements").fetchall()
        return [name for (name,) in names if name.startswith("windlass")]

    for _ in range(3):
        work.enqueue()
    assert len(prepared()) == 1
    with store._pool.connection(10) as wire:
        wire.execute("DEALLOCATE ALL")
    handle = work.enqueue()
    assert handle.info().state is State.PENDING
    work.enqueue()
    assert len(prepared()) == 1

    async def main() -> None:
        await work.aenqueue()
        async with store._here().pool.connection(10) as wire:
            await wire.execute("DEALLOCATE ALL")
        assert (await (await work.aenqueue()).ainfo()).state is State.PENDING
        await app.aclose()

    asyncio.run(main())


@on_postgres
def test_a_connection_in_a_transaction_is_not_kept(bed: Bed, store: PostgresStore) -> None:
    with store._pool.connection(10) as wire:
        wire.execute("BEGIN")
    assert store._pool.open == 0


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
