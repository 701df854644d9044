"""The PostgreSQL store obeys every law on PostgreSQL 15, and behind PgBouncer as well."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.support.clocked_stores import Clocked, opened
from tests.system.bouncer import PgBouncer
from windlass.store.postgres import PostgresStore
from windlass.testing.conformance import Bench, Law, laws_for

LAWS = laws_for(PostgresStore.capabilities)
OF_WAKE_UPS = {
    "a_wait_ends_when_something_changes",
    "a_change_between_the_sweep_and_the_wait_is_not_missed",
    "every_waiter_wakes_up",
    "a_process_that_was_busy_waits_like_any_other",
    "a_worker_of_one_queue_finds_its_jobs_beside_many_lanes_of_others",
}
"""What cannot be had from a store that was told to do without notifications, and to poll."""


@pytest.fixture(scope="module")
def arena(shared_database: Clocked) -> Clocked:
    """Give the database in which all laws are checked."""
    # While the clock stands still, only their numbers tell which job was first; and sessions, of
    # which a pooler has several for one client, would hand out numbers by thousands.
    shared_database.db.execute("ALTER TABLE windlass.jobs ALTER COLUMN seq SET CACHE 1")
    return shared_database


@asynccontextmanager
async def open_bench(database: Clocked, url: str, listen_url: str | None) -> AsyncIterator[Bench]:
    database.empty()
    async with opened(url, listen_url=listen_url) as store:
        yield Bench(store, database, sibling=lambda: opened(url, listen_url=listen_url))


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_store_obeys_on_postgresql_15(law: Law, arena: Clocked) -> None:
    asyncio.run(law.check(lambda: open_bench(arena, arena.url, None)))


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_store_obeys_through_a_pooler(law: Law, arena: Clocked, bouncer: PgBouncer) -> None:
    """Case 25. Prevents a law that holds only as long as a session is one's own."""
    url = bouncer.through(arena.url)
    asyncio.run(law.check(lambda: open_bench(arena, url, arena.url)))


@pytest.mark.parametrize("law", [law for law in LAWS if law.name not in OF_WAKE_UPS], ids=str)
def test_the_store_obeys_through_a_pooler_by_polling_alone(
    law: Law, arena: Clocked, bouncer: PgBouncer
) -> None:
    """Case 25, for those who have no way around the pooler."""
    url = bouncer.through(arena.url)
    asyncio.run(law.check(lambda: open_bench(arena, url, "off")))


def test_the_laws_of_wake_ups_are_laws() -> None:
    assert {law.name for law in LAWS} >= OF_WAKE_UPS
