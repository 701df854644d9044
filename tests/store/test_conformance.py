"""Every store obeys every law that its capabilities put on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.clocked_stores import Clocked, opened
from tests.support.postgres.fixtures import each_version
from tests.support.redis_fixtures import ClockedRedis
from windlass.store.memory import MemoryStore
from windlass.store.postgres import PostgresStore
from windlass.store.protocol import Capabilities, Store
from windlass.store.redis import RedisStore
from windlass.store.sqlite import SqliteStore
from windlass.testing.conformance import (
    LAWS,
    Bench,
    Law,
    ManualClock,
    NotApplicable,
    enqueueing,
    laws_for,
    uniqueness,
)

SIZE = 200


@asynccontextmanager
async def open_memory() -> AsyncIterator[Bench]:
    clock = ManualClock()
    yield Bench(MemoryStore(size=SIZE, clock=clock), clock, size=SIZE)


@asynccontextmanager
async def open_sqlite(path: Path) -> AsyncIterator[Bench]:
    clock = ManualClock()

    @asynccontextmanager
    async def opened() -> AsyncIterator[Store]:
        store = SqliteStore(path, clock=clock)
        try:
            yield store
        finally:
            await store.close()

    async with opened() as store:
        yield Bench(store, clock, sibling=opened)


@asynccontextmanager
async def open_postgres(database: Clocked) -> AsyncIterator[Bench]:
    database.empty()
    async with opened(database.url) as store:
        yield Bench(store, database, sibling=lambda: opened(database.url))


@asynccontextmanager
async def open_redis(clocked: ClockedRedis) -> AsyncIterator[Bench]:
    clocked.empty()
    async with clocked.opened() as store:
        yield Bench(store, clocked, sibling=clocked.opened)


@pytest.mark.parametrize("law", laws_for(MemoryStore().capabilities), ids=str)
def test_the_memory_store_obeys(law: Law) -> None:
    asyncio.run(law.check(open_memory))


@pytest.mark.parametrize("law", laws_for(SqliteStore(Path("unused.db")).capabilities), ids=str)
def test_the_sqlite_store_obeys(law: Law, tmp_path: Path) -> None:
    asyncio.run(law.check(lambda: open_sqlite(tmp_path / "jobs.db")))


@pytest.mark.parametrize("law", laws_for(PostgresStore.capabilities), ids=str)
@pytest.mark.parametrize("postgres_server", each_version(), indirect=True)
def test_the_postgres_store_obeys(law: Law, shared_database: Clocked) -> None:
    asyncio.run(law.check(lambda: open_postgres(shared_database)))


@pytest.mark.parametrize("law", laws_for(RedisStore.capabilities), ids=str)
def test_the_redis_store_obeys(law: Law, redis_clock: ClockedRedis) -> None:
    asyncio.run(law.check(lambda: open_redis(redis_clock)))


PRODUCING = [
    law
    for theme in (enqueueing, uniqueness)
    for law in vars(theme).values()
    if isinstance(law, Law)
]


@pytest.mark.parametrize("law", PRODUCING, ids=str)
def test_the_postgres_store_obeys_too_if_jobs_may_have_been_sent_before(
    law: Law, shared_database: Clocked
) -> None:
    @asynccontextmanager
    async def open_unsure() -> AsyncIterator[Bench]:
        async with open_postgres(shared_database) as bench:
            bench.origin = None
            yield bench

    asyncio.run(law.check(open_unsure))


def test_every_law_is_checked_on_some_store() -> None:
    stores = (MemoryStore(), SqliteStore(Path("unused.db")), PostgresStore, RedisStore)
    capabilities = [store.capabilities for store in stores]
    assert {law for have in capabilities for law in laws_for(have)} == set(LAWS)


def test_laws_have_names_of_their_own_and_say_what_they_mean() -> None:
    assert len({law.name for law in LAWS}) == len(LAWS)
    assert [law.name for law in LAWS if not law.says.endswith(".")] == []


def test_a_law_that_does_not_apply_says_so_instead_of_passing() -> None:
    plain = Capabilities(shared=False, durable=False, bounded=True, transactional=False)
    law = next(law for law in LAWS if not law.applies_to(plain))
    with pytest.raises(NotApplicable, match=law.name):
        asyncio.run(law.check(open_memory))
