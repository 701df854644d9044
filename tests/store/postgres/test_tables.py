"""The rooms: the finished ring and its retention, which nobody waits for; and ids across rooms."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.store.postgres.finished_jobs import MANY, finish, new, take
from tests.support.clocked_stores import START, Clocked, opened
from windlass.core.jobs.job import UniqueKey
from windlass.core.jobs.queries import Retention
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import State

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
PROMPT = 60.0


def files(database: Clocked) -> dict[str, int]:
    """Return the file of every slot of the ring: to truncate one is to give it another."""
    rows = database.db.execute(
        "SELECT inhrelid::regclass::text, pg_relation_filenode(inhrelid) "
        "FROM pg_inherits WHERE inhparent = 'windlass.finished_jobs'::regclass"
    )
    return dict(rows.fetchall())


def slot_at(moment: datetime) -> str:
    return f"windlass.finished_jobs_{int(moment.timestamp() // 86_400) % 32:02}"


@contextmanager
def report(database: Clocked) -> Iterator[psycopg.Connection[Any]]:
    """Read the whole finished room in a transaction, and leave it open."""
    with psycopg.connect(database.url) as db:
        db.execute("SELECT count(*) FROM windlass.finished_jobs")
        yield db


# -- retention ---------------------------------------------------------------------------------


def test_whole_days_are_emptied_at_once(database: Clocked) -> None:
    async def main() -> None:
        async with opened(database.url) as store:
            job = await finish(store, database)
            before = files(database)
            retention = Retention(finished=2 * DAY)
            await database.advance(2 * DAY - HOUR)
            assert await store.prune(retention, MANY) == 0
            assert await store.get(job.id) is not None
            await database.advance(DAY)
            # It is more than a limit of one would delete, had rows to be deleted one by one.
            assert await store.prune(retention, 1) >= 1
            assert await store.get(job.id) is None
            changed = {name for name, file in files(database).items() if file != before[name]}
            assert changed == {slot_at(START)}
            assert await store.prune(retention, MANY) == 0

    asyncio.run(main())


def test_less_than_a_day_is_deleted_row_by_row(database: Clocked) -> None:
    async def main() -> None:
        async with opened(database.url) as store:
            old = [await finish(store, database) for _ in range(3)]
            await database.advance(HOUR)
            young = await finish(store, database)
            before = files(database)
            retention = Retention(finished=HOUR / 2)
            assert await store.prune(retention, 2) == 2
            assert await store.prune(retention, 2) == 1
            assert await store.prune(retention, 2) == 0
            assert [await store.get(job.id) for job in old] == [None] * 3
            assert await store.get(young.id) is not None
            assert files(database) == before

    asyncio.run(main())


def test_more_than_the_ring_holds_is_deleted_row_by_row(database: Clocked) -> None:
    """Prevents: a slot that two days share is emptied with the younger one's jobs in it."""

    async def main() -> None:
        async with opened(database.url) as store:
            old = await finish(store, database)
            await database.advance(32 * DAY)
            young = await finish(store, database)
            before = files(database)
            await database.advance(14 * DAY)
            assert await store.prune(Retention(finished=45 * DAY), MANY) == 1
            assert await store.get(old.id) is None
            assert await store.get(young.id) is not None
            assert files(database) == before

    asyncio.run(main())


FINISHED = """
INSERT INTO windlass.finished_jobs (seq, id, kind, state, payload, finished_at, slot)
VALUES (0, %s, 'work', 'completed', '{}', %s, windlass.slot_of(%s))
"""


@pytest.mark.parametrize("days", [0, 0.5, 1, 1.5, 7, 29.5, 30, 30.5, 31, 32, 33, 45])
def test_nothing_younger_than_its_retention_is_ever_lost(
    days: float, shared_database: Clocked
) -> None:
    """For months, with days without a worker, and a clock that is now and then set back."""
    dice = random.Random(f"{days} days")
    kept: dict[UUID, datetime] = {}
    retention = days * DAY
    database = shared_database
    database.empty()

    async def main() -> None:
        async with opened(database.url) as store:
            await store.sweep()
            for _ in range(40):
                for _ in range(dice.randrange(4)):
                    identity, ended = uuid4(), database() - dice.random() * HOUR
                    kept[identity] = ended
                    database.db.execute(FINISHED, [identity, ended, ended])
                await store.prune(Retention(finished=retention), MANY)
                check()
                step = dice.choice((0.1, 0.5, 1.0, 1.0, 3.0, 9.0, -0.05, -2.0))
                await database.advance(step * DAY)

    def check() -> None:
        rows = database.db.execute("SELECT id FROM windlass.finished_jobs").fetchall()
        left = {row[0] for row in rows}
        for identity, ended in list(kept.items()):
            if ended >= database() - retention:
                assert identity in left, f"lost at {database()}: {ended}"
            elif identity not in left:
                del kept[identity]

    asyncio.run(main())


@pytest.mark.parametrize("days", [0.5, 1, 7, 30, 31, 33])
def test_nothing_is_kept_for_more_than_a_day_longer_than_its_retention(
    days: float, shared_database: Clocked
) -> None:
    dice = random.Random(f"{days} days")
    retention = days * DAY
    database = shared_database
    database.empty()

    async def main() -> None:
        async with opened(database.url) as store:
            for _ in range(80):
                ended = database() - dice.random() * HOUR
                database.db.execute(FINISHED, [uuid4(), ended, ended])
                await database.advance(DAY / 2)
                await store.prune(Retention(finished=retention), MANY)
                (oldest,) = database.db.execute(
                    "SELECT min(finished_at) FROM windlass.finished_jobs"
                ).fetchall()
                assert oldest[0] is None or oldest[0] >= database() - retention - DAY

    asyncio.run(main())


SPENT = """
INSERT INTO windlass.unique_keys (key, job, frees_on_claim, until)
SELECT n, gen_random_uuid(), false, windlass.clock() FROM generate_series(1, 5) AS n;
INSERT INTO windlass.done_keys (kind, key, job, at)
SELECT 'work', n, gen_random_uuid(), windlass.clock() FROM generate_series(1, 5) AS n
"""


def test_keys_are_pruned_some_at_a_time(database: Clocked) -> None:
    """Prevents: a prune of millions of keys outlasts its time, and deletes none, each time."""

    async def main() -> None:
        database.db.execute(SPENT)
        await database.advance(2 * DAY)
        async with opened(database.url) as store:
            pruned = [await store.prune(Retention(finished=DAY), 2) for _ in range(4)]
        assert pruned == [4, 4, 2, 0]

    asyncio.run(main())


# -- who reads the room blocks nobody ----------------------------------------------------------


def test_a_report_on_finished_jobs_blocks_nobody_and_is_pruned_around(database: Clocked) -> None:
    async def main() -> None:
        async with opened(database.url) as store:
            old = await finish(store, database)
            await database.advance(5 * DAY)
            dead = await finish(store, database, State.DEAD)
            await database.advance(HOUR)
            retention = Retention(finished=DAY, dead=HOUR / 2)
            with report(database) as reader:
                async with asyncio.timeout(PROMPT):
                    # The slot is left alone; everything else goes on, the rest of the prune too.
                    assert await store.prune(retention, MANY) == 1
                    assert await store.get(dead.id) is None
                    done = await finish(store, database)
                    again = await store.enqueue([old, done, new(database)])
                    assert [answer.is_duplicate for answer in again] == [False] * 3
                seen = reader.execute("SELECT id FROM windlass.finished_jobs").fetchall()
                assert (old.id,) in seen
            assert await store.get(old.id) is not None
            assert await store.prune(retention, MANY) == 1
            assert await store.get(old.id) is None
            assert await store.get(done.id) is not None

    asyncio.run(main())


def test_a_report_on_everything_is_not_waited_for_while_a_prune_runs_beside_it(
    database: Clocked,
) -> None:
    """Settles and enqueues are prompt while a prune tries for a slot again and again."""

    async def main() -> None:
        async with opened(database.url) as store, opened(database.url) as pruner:
            old = []
            for _ in range(4):
                old.append(await finish(store, database))
                await database.advance(DAY)
            await database.advance(10 * DAY)

            async def prune() -> None:
                while True:
                    assert await pruner.prune(Retention(finished=DAY), MANY) == 0

            with report(database):
                pruning = asyncio.create_task(prune())
                async with asyncio.timeout(PROMPT):
                    for _ in range(10):
                        await finish(store, database)
                pruning.cancel()
                await asyncio.wait({pruning})
            # The server may go on with the prune that was cancelled, and commit it, so the counts
            # of later calls may leave out some of the jobs.
            async with asyncio.timeout(PROMPT):
                while any([await store.get(job.id) for job in old]):
                    await store.prune(Retention(finished=DAY), MANY)

    asyncio.run(main())


LOCKED = """
SELECT relation::regclass::text FROM pg_locks
WHERE mode = 'AccessExclusiveLock' AND relation::regclass::text LIKE 'windlass.%'
"""


def test_a_slot_with_something_to_keep_is_not_even_locked(database: Clocked) -> None:
    """Prevents: while a prune looks through a large slot, nobody learns whether an id is known."""

    async def main() -> None:
        async with opened(database.url) as store, opened(database.url) as other:
            old = await finish(store, database)
            # Of the next round of the ring: the clock was set back since.
            young = START + 32 * DAY
            database.db.execute(FINISHED, [uuid4(), young, young])
            await database.advance(5 * DAY)
            with psycopg.connect(database.url) as pruner:
                pruner.execute("SELECT windlass.prune('1 day', '1 day', '1 day', '1 day', 1000)")
                assert database.db.execute(LOCKED).fetchall() == []
                async with asyncio.timeout(PROMPT):
                    await other.enqueue([old])
            assert await take(other) == []

    asyncio.run(main())


LARGE = """
INSERT INTO windlass.finished_jobs (seq, id, kind, state, payload, finished_at, slot)
SELECT n, gen_random_uuid(), 'work', 'completed', json_build_object('text', repeat('x', 1000)),
       windlass.clock(), windlass.slot_of(windlass.clock())
FROM generate_series(1, 3000) AS n
"""


def test_a_large_slot_is_looked_through_before_it_is_locked(database: Clocked) -> None:
    """Prevents: the last look reads every page of the slot while nobody else can."""

    async def main() -> None:
        database.db.execute(LARGE)
        await database.advance(5 * DAY)
        async with opened(database.url) as store:
            with report(database):
                assert await store.prune(Retention(finished=DAY), MANY) == 0
            unseen = f"SELECT brin_summarize_new_values('{slot_at(START)}_finished_at_idx')"
            assert database.db.execute(unseen.encode()).fetchone() == (0,)
            assert await store.prune(Retention(finished=DAY), MANY) >= 1

    asyncio.run(main())


def test_prunes_at_the_same_time_do_not_wait_for_each_other(database: Clocked) -> None:
    """Prevents: of two workers that prune at once, one fails after its lock timeout."""

    async def main() -> None:
        async with opened(database.url) as store:
            for state in (State.COMPLETED, State.DEAD):
                await finish(store, database, state)
            await store.retire("w")
            await database.advance(5 * DAY)
            with psycopg.connect(database.url) as other:
                other.execute("SELECT windlass.prune('1 hour', '1 hour', '1 hour', '1 hour', 1000)")
                async with asyncio.timeout(PROMPT):
                    assert await store.prune(Retention(finished=HOUR, dead=HOUR), MANY) == 0
                other.rollback()
            assert await store.prune(Retention(finished=HOUR, dead=HOUR), MANY) == 3

    asyncio.run(main())


def test_a_prune_continues_past_an_expired_key_that_is_locked(database: Clocked) -> None:
    """Prevents: one transaction that a user leaves open stops all pruning, with an error each."""

    async def main() -> None:
        async with opened(database.url) as store:
            await store.enqueue([new(database, unique=UniqueKey(key="k", until=HOUR))])
            (job,) = await take(store)
            await store.settle([Transition(id=job.id, token=7, state=State.COMPLETED)])
            await database.advance(5 * DAY)
            with psycopg.connect(database.url) as user:
                store.enqueue_in(user, [new(database, unique=UniqueKey(key="k", until=HOUR))])
                async with asyncio.timeout(PROMPT):
                    assert await store.prune(Retention(finished=HOUR), MANY) == 1
                assert await store.get(job.id) is None
                user.rollback()

    asyncio.run(main())
