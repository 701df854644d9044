"""A role that may log in, and was granted nothing, stops nobody.

Every role may take every advisory lock of the database, and hold it for as long as it is connected.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import psycopg
import pytest

import windlass
from tests.store.postgres.test_locks import wait_for_a_lock
from tests.support.clocked_stores import opened
from tests.support.database_roles import role
from windlass.core.changes import Changes
from windlass.core.records import Json, News
from windlass.store.postgres import PostgresStore
from windlass.store.postgres import migrate as schema
from windlass.testing.conformance.bench import Bench, ManualClock

NAMES = ("limit:kind:lim", "schedule:nightly", "pause:queue:mail", "breaker:smtp", "event:paid")
ONCE_USED = 1_463_898_692
"""What advisory locks of Windlass had in them once: a plausible key for whoever tries."""


@contextmanager
def a_stranger(url: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """Give the connection of a role without any grant, which holds advisory locks."""
    with role(url) as its_url, psycopg.connect(its_url, autocommit=True) as stranger:
        for name in NAMES:
            for key in (name, f"windlass:{name}"):
                stranger.execute("SELECT pg_advisory_lock(hashtext(%s))", [key])
                stranger.execute(
                    "SELECT pg_advisory_lock(hashtextextended(%s, %s))", [key, ONCE_USED]
                )
        stranger.execute("SELECT pg_advisory_lock(%s, hashtext('windlass'))", [ONCE_USED])
        yield stranger


def count(records: Mapping[str, Json], _now: datetime) -> Changes[None]:
    numbers = {name: records.get(name, {"n": 0})["n"] + 1 for name in NAMES}
    return Changes(answer=None, records={name: {"n": n} for name, n in numbers.items()})


def count_news(records: Mapping[str, Json], news: Sequence[News], now: datetime) -> Changes[int]:
    return Changes(answer=len(news), records=count(records, now).records)


def test_records_are_locked_by_nothing_that_a_stranger_can_take(migrated_url: str) -> None:
    """Prevents: limits, schedules, flows, events and pauses that stand still for one login."""

    async def main() -> None:
        async with opened(migrated_url) as store, asyncio.timeout(60):
            bench = Bench(store, ManualClock())
            await store.apply(NAMES, count)
            await store.send([News(topic="event:paid", id=bench.new().id, body=b"1")])
            assert (await store.hear(NAMES, count_news)).answer == 1
            assert await store.records("limit:") == {"limit:kind:lim": {"n": 2}}

    with a_stranger(migrated_url):
        asyncio.run(main())


def test_a_role_without_grants_cannot_block_a_migration(postgres_url: str) -> None:
    async def main() -> None:
        async with opened(postgres_url) as store, asyncio.timeout(60):
            assert len(await store.migrate()) == len(schema.MIGRATIONS) + 1  # And the functions.

    with a_stranger(postgres_url):
        asyncio.run(main())


def test_no_lock_is_taken_that_every_role_can_take() -> None:
    """Advisory locks are never taken; that a connection gives back those of users is no lock."""
    source = Path(windlass.__file__).parent
    texts = [path.read_text() for path in source.rglob("*") if path.suffix in (".py", ".sql")]
    assert {found for text in texts for found in re.findall(r"pg_\w*advisory\w*", text)} == {
        "pg_advisory_unlock_all"
    }


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT FROM windlass.records FOR UPDATE",
        "SELECT * FROM windlass.lock_records('{limit:kind:lim}')",
        "LOCK TABLE windlass.records IN ACCESS SHARE MODE",
        "LOCK TABLE windlass.migrations IN SHARE ROW EXCLUSIVE MODE",
        "COMMENT ON SCHEMA windlass IS 'mine'",
    ],
)
def test_a_stranger_can_take_none_of_the_locks_that_are(migrated_url: str, statement: str) -> None:
    with (
        role(migrated_url) as its_url,
        psycopg.connect(its_url) as stranger,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        stranger.execute(statement.encode())


# -- the locks that are there instead --------------------------------------------------------------


def test_a_record_that_is_deleted_while_another_waits_for_it_is_made_by_that(
    migrated_url: str,
) -> None:
    """Prevents: a lock of a row that is gone, by which two decide at the same time."""

    async def main(store: PostgresStore, holder: psycopg.Connection[tuple[object, ...]]) -> None:
        await store.apply(NAMES, count)
        holder.execute("SELECT * FROM windlass.lock_records('{limit:kind:lim}')")
        waiting = asyncio.create_task(store.apply(NAMES, count))
        await asyncio.to_thread(wait_for_a_lock, migrated_url)
        holder.execute("DELETE FROM windlass.records WHERE name = 'limit:kind:lim'")
        holder.commit()
        await waiting
        assert await store.records("limit:") == {"limit:kind:lim": {"n": 1}}
        assert await store.records("pause:") == {"pause:queue:mail": {"n": 2}}

    async def run() -> None:
        async with opened(migrated_url) as store, asyncio.timeout(60):
            with psycopg.connect(migrated_url) as holder:
                await main(store, holder)

    asyncio.run(run())


def test_a_record_that_is_only_locked_is_never_seen(migrated_url: str) -> None:
    """Prevents: an empty record that stays behind, or that others read while it is decided on."""

    async def run() -> None:
        async with opened(migrated_url) as store, asyncio.timeout(60):
            with psycopg.connect(migrated_url) as holder:
                holder.execute("SELECT * FROM windlass.lock_records(%s)", [list(NAMES)])
                assert await store.records("") == {}
                waiting = asyncio.create_task(store.apply(NAMES, nothing))
                await asyncio.to_thread(wait_for_a_lock, migrated_url)
                holder.rollback()
                assert (await waiting).answer == 0
            await store.hear(["event:paid"], lambda _records, _news, _now: Changes(answer=None))
            assert await store.records("") == {}

    def nothing(records: Mapping[str, Json], _now: datetime) -> Changes[int]:
        return Changes(answer=len(records))

    asyncio.run(run())
