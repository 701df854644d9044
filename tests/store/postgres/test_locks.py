"""Nobody who holds something open keeps workers from what is not theirs."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from tests.store.clocked import opened
from windlass.core.errors import ConfigError, StoreBusy
from windlass.core.job import UniqueKey
from windlass.core.states import State
from windlass.store.postgres.schema import Names
from windlass.testing.conformance.bench import Bench, ManualClock, leaving

KEY = UniqueKey(key="welcome:42")


def test_who_is_told_that_a_key_is_held_keeps_nobody_from_freeing_it(migrated_url: str) -> None:
    """Prevents: a user's open transaction that stops a worker, and all who settle with it."""

    async def run() -> None:
        async with opened(migrated_url) as store:
            bench = Bench(store, ManualClock())
            job = await bench.start(unique=KEY)
            with psycopg.connect(migrated_url) as user:
                told = user.execute(
                    "SELECT id, existing FROM windlass.enqueue_many(%s)",
                    ['[{"kind": "work", "unique": "welcome:42"}]'],
                ).fetchone()
                assert told == (job.id, True)
                assert await store.settle([leaving(job)]) == [True]
                user.rollback()

    asyncio.run(run())


def test_an_outcome_that_somebody_holds_up_holds_up_no_other(migrated_url: str) -> None:
    """Prevents: a handler's forgotten transaction that keeps every acknowledgement waiting."""

    async def run() -> None:
        async with opened(migrated_url) as store:
            bench = Bench(store, ManualClock())
            stuck, free = await bench.start(), await bench.start()
            with psycopg.connect(migrated_url) as user:
                user.execute("SELECT FROM windlass.jobs WHERE id = %s FOR UPDATE", [stuck.id])
                held = asyncio.create_task(store.settle([leaving(stuck)]))
                assert await store.settle([leaving(free)]) == [True]
                with pytest.raises(StoreBusy, match="try again"):
                    await held
                user.rollback()
            assert await store.settle([leaving(stuck)]) == [True]
            assert await bench.state(stuck.id) is State.COMPLETED

    asyncio.run(run())


@pytest.mark.parametrize("name", ["public", "pg_jobs", "information_schema"])
def test_a_schema_that_others_use_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(ConfigError, match="their own"):
        Names(name)


def test_a_schema_that_holds_other_things_is_left_alone(postgres_url: str) -> None:
    """Prevents: a migration that revokes the rights to functions of somebody else."""
    with psycopg.connect(postgres_url) as db:
        db.execute("CREATE SCHEMA shop; CREATE TABLE shop.orders (id integer)")

    async def run() -> None:
        async with opened(postgres_url, schema="shop") as store:
            with pytest.raises(ConfigError, match="another name"):
                await store.migrate()

    asyncio.run(run())
