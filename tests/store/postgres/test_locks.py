"""Nobody who holds something open keeps workers from what is not theirs."""

from __future__ import annotations

import asyncio
import time

import psycopg
import pytest

from tests.support.clocked_stores import opened
from windlass.core.claims.lanes import Ask, Claim
from windlass.core.errors import ConfigError, StoreBusy
from windlass.core.jobs.job import Lane, UniqueKey
from windlass.core.jobs.states import State
from windlass.core.jobs.streams import BEGIN, ChunkGroup
from windlass.store.postgres.migrate import Names
from windlass.store.postgres.parameters import stream_document
from windlass.testing.conformance.bench import Bench, ManualClock, ids, leaving

KEY = UniqueKey(key="welcome:42")
REPLACING = UniqueKey(key="welcome:42", until="claimed", on_duplicate="replace")
ENQUEUE = "SELECT id, is_duplicate FROM windlass.enqueue_many(%s)"
REPLACE = """[{
    "kind": "work", "unique": "welcome:42", "unique_until": "claimed", "on_duplicate": "replace",
    "payload": {"n": 2}
}]"""


def test_a_duplicate_does_not_lock_the_holder_of_its_key(migrated_url: str) -> None:
    """Prevents: a user's open transaction that stops a worker, and all who settle with it."""

    async def run() -> None:
        async with opened(migrated_url) as store:
            bench = Bench(store, ManualClock())
            job = await bench.start(unique=KEY)
            with psycopg.connect(migrated_url) as user:
                told = user.execute(
                    "SELECT id, is_duplicate FROM windlass.enqueue_many(%s)",
                    ['[{"kind": "work", "unique": "welcome:42"}]'],
                ).fetchone()
                assert told == (job.id, True)
                assert await store.settle([leaving(job)]) == [True]
                user.rollback()

    asyncio.run(run())


def test_a_transaction_that_changes_a_waiting_job_blocks_only_that_job(migrated_url: str) -> None:
    """Prevents: a user's open transaction that stops every claim; what it changes waits for it."""

    async def run() -> None:
        async with opened(migrated_url) as store:
            bench = Bench(store, ManualClock())
            held = await bench.enqueue(unique=REPLACING, payload=b'{"n":1}')
            other = await bench.enqueue()
            worker = await bench.worker()
            with psycopg.connect(migrated_url) as user:
                told = user.execute(ENQUEUE, [REPLACE]).fetchone()
                assert told == (held, True)
                async with asyncio.timeout(60):
                    assert ids(await bench.claim(worker)) == [other]
                user.commit()
            (job,) = await bench.claim(worker)
            assert (job.id, job.payload) == (held, b'{"n": 2}')

    asyncio.run(run())


def test_a_job_that_somebody_changes_is_not_overtaken_where_order_is_strict(
    migrated_url: str,
) -> None:
    """Prevents: a claim that passes over what is locked, and starts the next job of the key."""

    async def run() -> None:
        async with opened(migrated_url) as store:
            bench = Bench(store, ManualClock())
            held = await bench.enqueue(unique=REPLACING, payload=b'{"n":1}')
            second = await bench.enqueue()
            other = await bench.enqueue(kind="other")
            worker = await bench.worker()
            claim = Claim(
                asks=(
                    Ask(lane=Lane("default", "work"), count=1, ordered=True),
                    Ask(lane=Lane("default", "other"), count=1, ordered=True),
                )
            )
            with psycopg.connect(migrated_url) as user:
                assert user.execute(ENQUEUE, [REPLACE]).fetchone() == (held, True)
                async with asyncio.timeout(60):
                    assert ids(await bench.claim_all(worker, claim)) == [other]
                user.commit()
            (job,) = await bench.claim_all(worker, claim)
            assert (job.id, job.payload) == (held, b'{"n": 2}')
            assert ids(await bench.claim_all(worker, claim)) == [second]

    asyncio.run(run())


def test_a_change_that_comes_while_its_job_is_claimed_becomes_a_job_of_its_own(
    migrated_url: str,
) -> None:
    """Prevents: a payload that is written to nothing, since its job runs with the one before."""

    async def run() -> None:
        async with opened(migrated_url) as store:
            bench = Bench(store, ManualClock())
            held = await bench.enqueue(unique=REPLACING, payload=b'{"n":1}')
            with psycopg.connect(migrated_url) as claimer:
                claimer.execute(
                    "UPDATE windlass.jobs SET state = 'running', attempt = 1, worker = 'w', "
                    "token = 1 WHERE id = %s",
                    [held],
                )
                claimer.execute("DELETE FROM windlass.unique_keys")
                new = asyncio.create_task(bench.add(unique=REPLACING, payload=b'{"n":2}'))
                await asyncio.to_thread(wait_for_a_lock, migrated_url)
                claimer.commit()
            answer = await new
            assert (answer.is_duplicate, answer.id != held) == (False, True)
            assert (await bench.job(answer.id)).payload == b'{"n":2}'
            assert (await bench.job(held)).payload == b'{"n":1}'

    asyncio.run(run())


def wait_for_a_lock(url: str) -> None:
    """Return once somebody waits for somebody else."""
    with psycopg.connect(url, autocommit=True) as db:
        deadline = time.monotonic() + 60
        while not db.execute("SELECT FROM pg_locks WHERE NOT granted").fetchall():
            assert time.monotonic() < deadline, "nobody waits"


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
    with pytest.raises(ConfigError, match=f"one used only for jobs, got '{name}'; choose another"):
        Names(name)


def test_a_schema_that_holds_other_things_is_left_alone(postgres_url: str) -> None:
    """Prevents: a migration that revokes the rights to functions of somebody else."""
    with psycopg.connect(postgres_url) as db:
        db.execute("CREATE SCHEMA shop; CREATE TABLE shop.orders (id integer)")

    async def run() -> None:
        async with opened(postgres_url, schema="shop") as store:
            with pytest.raises(
                ConfigError,
                match="shop already contains other objects; choose another with --schema",
            ):
                await store.migrate()

    asyncio.run(run())


def test_chunks_are_fenced_until_they_are_committed(migrated_url: str) -> None:
    """Prevents: chunks of a lost worker that appear after those of the next."""

    async def run() -> None:
        async with opened(migrated_url) as store:
            job = await Bench(store, ManualClock()).start()
            assert job.token is not None
            group = ChunkGroup(
                id=job.id, token=job.token, attempt=1, offset=0, resumed=0, steps=0, chunks=(b"1",)
            )
            lock = "SELECT FROM windlass.jobs WHERE id = %s FOR UPDATE NOWAIT"
            with psycopg.connect(migrated_url) as slow, psycopg.connect(migrated_url) as rescuer:
                slow.execute(store.sql["stream_append"], [stream_document([group])])
                with pytest.raises(psycopg.errors.LockNotAvailable):
                    rescuer.execute(lock, [job.id])
                rescuer.rollback()
                slow.rollback()
                rescuer.execute("UPDATE windlass.jobs SET token = 0 WHERE id = %s", [job.id])
                late = asyncio.create_task(store.stream_append([group]))
                await asyncio.wait({late}, timeout=0.2)
                rescuer.commit()
            assert await late == [None]
            assert (await store.stream_read(job.id, BEGIN, 10)).groups == []

    asyncio.run(run())
