"""The pools of an app's connections: how many they open and keep, and which they replace."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pytest

from tests.app.named_connections import connections, left_open, named
from tests.support.app_on_store import STORES, Bed, until
from windlass import State, StoreUnavailable
from windlass.settings import Settings
from windlass.store.postgres import PostgresStore
from windlass.store.postgres.connections import pool
from windlass.store.postgres.connections.pool import PoolSize

pytestmark = pytest.mark.stores(*STORES)
on_postgres = pytest.mark.parametrize("bed", ["postgres"], indirect=True)


def end_connections(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        for pid in connections(url):
            db.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])


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
    assert left_open(bed.url) == []


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
