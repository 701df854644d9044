"""The rooms: the finished ring and its retention, which nobody waits for; and ids across rooms."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.support.clocked_stores import START, Clocked, opened
from tests.support.database_roles import MAY_WORK, role
from windlass.core.changes import Changes
from windlass.core.claims.lanes import Ask, Claim
from windlass.core.errors import LeaseLost
from windlass.core.jobs.ids import job_id
from windlass.core.jobs.job import (
    IDEMPOTENCY_KEY,
    Checkpoint,
    Job,
    Lane,
    NewJob,
    Progress,
    UniqueKey,
)
from windlass.core.jobs.origin import Origin
from windlass.core.jobs.queries import JobFilter, Retention
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import State
from windlass.core.jobs.streams import BEGIN, Appended, ChunkGroup
from windlass.core.records import News
from windlass.core.workers import WorkerInfo, WorkerPulse
from windlass.store.postgres import PostgresStore
from windlass.store.protocol import Store

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
LEASE = timedelta(days=10_000)
LANE = Lane("default", "work")
PROMPT = 60.0
MANY = 1_000
NUMBERS = count(1)


def new(database: Clocked, **fields: Any) -> NewJob:
    identity = job_id(int(database().timestamp() * 1_000), next(NUMBERS))
    base: dict[str, Any] = {"id": identity, "kind": "work", "payload": b"{}"}
    return NewJob(**base | fields)


async def take(store: PostgresStore, most: int = MANY) -> list[Job]:
    info = WorkerInfo(id="w", name="w", host="h", pid=1, release="1", lease=LEASE, slots=10)
    await store.register(info)
    return await store.claim(Claim(asks=(Ask(lane=LANE, count=most),)), worker="w", token=7)


async def finish(store: PostgresStore, database: Clocked, state: State = State.COMPLETED) -> NewJob:
    """Bring a new job into a last state, by the store's clock."""
    job = new(database)
    await store.enqueue([job])
    (claimed,) = await take(store, 1)
    assert claimed.id == job.id
    assert await store.settle([Transition(id=job.id, token=7, state=state)]) == [True]
    return job


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


# -- ids ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("days", [0, 1, 5, 30])
def test_a_job_is_found_in_every_room_and_never_added_again(days: int, database: Clocked) -> None:
    """Prevents: an enqueue that is repeated after its job has ended runs it a second time."""

    async def main() -> None:
        async with opened(database.url) as store, opened(database.url) as other:
            ended = [await finish(store, database, state) for state in ENDS]
            waits = new(database, due=100 * DAY)
            await store.enqueue([waits])
            known = [*ended, waits]
            for _ in range(3):
                await database.advance(days * DAY / 3)
            for job in known:
                assert (await other.get(job.id)) is not None
            bulk = [*known, *(new(database) for _ in range(30))]
            for repeat in (
                *(store.enqueue([job]) for job in known),
                *(other.enqueue([job]) for job in known),
                other.enqueue(known),
                other.enqueue(bulk),
                store.enqueue(bulk),
                asyncio.to_thread(other.enqueue_blocking, bulk, HOUR),
            ):
                answers = await repeat
                assert not any(answer.is_duplicate for answer in answers)
            with psycopg.connect(database.url) as user:
                other.enqueue_in(user, bulk)
            pages = [await store.find(JobFilter(states=(state,)), limit=MANY) for state in State]
            shown = {state: len(page.jobs) for state, page in zip(State, pages, strict=True)}
            expected = dict.fromkeys(ENDS, 1) | {State.SCHEDULED: 1, State.PENDING: 30}
            assert {state: count for state, count in shown.items() if count} == expected

    asyncio.run(main())


ENDS = (State.COMPLETED, State.CANCELLED, State.DEAD)


def test_an_id_from_a_producer_whose_clock_is_a_day_off_is_known_too(database: Clocked) -> None:
    async def main() -> None:
        async with opened(database.url) as store, opened(database.url) as other:
            for wrong in (-DAY, DAY):
                milliseconds = int((database() + wrong).timestamp() * 1_000)
                job = new(database, id=job_id(milliseconds, next(NUMBERS)))
                await store.enqueue([job])
                assert len(await take(store)) == 1
                move = Transition(id=job.id, token=7, state=State.COMPLETED)
                assert await store.settle([move]) == [True]
                await database.advance(HOUR)
                await other.enqueue([job])
                assert await take(other) == []

    asyncio.run(main())


# -- ids that were sent more than once ---------------------------------------------------------


def repeated(database: Clocked) -> set[UUID]:
    rows = database.db.execute("SELECT id FROM windlass.repeated_ids").fetchall()
    return {row[0] for row in rows}


def test_only_a_request_that_may_be_a_repetition_is_noted(database: Clocked) -> None:
    async def main() -> None:
        async with opened(database.url) as store:
            fresh = [new(database, origin=Origin(os.getpid())) for _ in range(60)]
            await store.enqueue(fresh[:1])
            await store.enqueue(fresh[1:10])
            await store.enqueue(fresh[10:])
            own = new(database)
            changes = Changes(answer=None, enqueue=[own])
            await store.apply([], lambda _records, _now: changes)
            assert repeated(database) == set()
            again = [new(database), fresh[0]]
            await store.enqueue(again)
            assert repeated(database) == {again[0].id}, "what is known need not be noted"
            many = [new(database) for _ in range(50)]
            await store.enqueue(many)
            assert repeated(database) == {job.id for job in (again[0], *many)}

    asyncio.run(main())


def test_a_repeated_id_is_forgotten_with_its_job(database: Clocked) -> None:
    """Prevents: a first request that comes late revives a dead job that is kept for ever."""

    async def main() -> None:
        async with opened(database.url) as store:
            finished = await finish(store, database)
            dead = await finish(store, database, State.DEAD)
            alive = new(database)
            await store.enqueue([alive])
            await store.prune(Retention(finished=2 * DAY), MANY)
            assert repeated(database) == {finished.id, dead.id, alive.id}
            await database.advance(4 * DAY)
            await store.prune(Retention(finished=2 * DAY), MANY)
            assert repeated(database) == {dead.id, alive.id}

    asyncio.run(main())


def test_a_repeated_enqueue_does_not_wait_for_a_prune(database: Clocked) -> None:
    async def main() -> None:
        async with opened(database.url) as store:
            job = await finish(store, database)
            await database.advance(40 * DAY)
            with psycopg.connect(database.url) as pruner:
                pruner.execute("DELETE FROM windlass.repeated_ids")
                pruner.execute("DELETE FROM windlass.finished_jobs_00")
                async with asyncio.timeout(PROMPT):
                    await store.enqueue([job])
                    await store.enqueue([job, *[new(database) for _ in range(50)]])

    asyncio.run(main())


# -- rights ------------------------------------------------------------------------------------

NO_DDL = """
CREATE TABLE clock.ddl (tag text);
CREATE FUNCTION clock.note() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER
AS $$ BEGIN INSERT INTO clock.ddl VALUES (tg_tag); END $$;
CREATE EVENT TRIGGER note ON ddl_command_start EXECUTE FUNCTION clock.note()
"""


def test_a_worker_needs_rows_and_functions_and_runs_no_ddl(database: Clocked) -> None:
    """Every method of the contract but `migrate` works for a role that owns nothing."""
    called: set[str] = set()

    class Counting(PostgresStore):
        def __getattribute__(self, name: str) -> Any:
            called.add(name)
            return super().__getattribute__(name)

    with role(database.url, MAY_WORK) as url:
        database.db.execute(NO_DDL)
        asyncio.run(live(Counting(url), database))
        with psycopg.connect(url, autocommit=True) as db:
            for statement in (
                "CREATE TABLE windlass.mine (n int)",
                "ALTER TABLE windlass.jobs ADD COLUMN mine int",
                "DROP TABLE windlass.finished_jobs_00",
                "TRUNCATE windlass.finished_jobs_00",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    db.execute(statement)
        database.db.execute("DROP EVENT TRIGGER note")
    tags = {tag for (tag,) in database.db.execute("SELECT tag FROM clock.ddl").fetchall()}
    # What the worker's role was refused has been noted and rolled back; the rest is the test's.
    assert tags <= {"DROP EVENT TRIGGER"}
    methods = {name for name in vars(Store) if not name.startswith("_")}
    assert methods - called == {"migrate"}


async def tell_and_hear(store: PostgresStore, database: Clocked, job: Job) -> None:
    """Do all that steps, streams, events and schedules need, once."""
    assert await store.checkpoint([Checkpoint(id=job.id, token=7, steps=("1",))]) == [True]
    chunks = ChunkGroup(
        id=job.id, token=7, attempt=1, offset=0, resumed=0, steps=0, chunks=(b"1", b"2")
    )
    assert await store.stream_append([chunks]) == [Appended(2, 2)]
    page = await store.stream_read(job.id, BEGIN, MANY)
    assert [group.chunks for group in page.groups] == [(b"1", b"2")]
    sent = [News(topic="event:a", id=new(database).id) for _ in range(4)]
    await store.send(sent[:1])
    await asyncio.to_thread(store.send_blocking, sent[1:2], HOUR)
    with psycopg.connect(database.url) as user:
        store.send_in(user, sent[2:3])
    async with await psycopg.AsyncConnection.connect(database.url) as auser:
        await store.asend_in(auser, sent[3:])
    assert await store.topics(MANY) == ["event:a"]
    alarm = Changes(
        answer=None, records={"b": {}}, alarms={"b": database() + HOUR}, unpark=["event:a"]
    )
    await store.hear(["event:a"], lambda _records, _news, _now: alarm)
    assert (await store.ringing(MANY)).next is not None
    await store.apply(["b"], lambda _records, _now: Changes(answer=None, records={"b": None}))
    assert set(await store.get_many([job.id])) == {job.id}


async def live(store: PostgresStore, database: Clocked) -> None:
    """Do everything that a worker and its producers do, once."""
    await store.open()
    assert store.capabilities.shared
    assert store.location
    assert (await store.schema()).found is not None
    assert await store.migrations() == []
    assert await store.disk() is None, "PostgreSQL does not tell"
    assert await store.recall(timedelta(0), timedelta(0)) == 0
    replacing = UniqueKey(key="k", until="claimed", on_duplicate="replace")
    keyed = new(database, unique=replacing, headers={IDEMPOTENCY_KEY: "k"})
    for _ in range(2):
        await store.enqueue([keyed])
    await store.enqueue([new(database) for _ in range(30)])
    await asyncio.to_thread(store.enqueue_blocking, [new(database, due=SECOND)], HOUR)
    with psycopg.connect(database.url) as user:
        store.enqueue_in(user, [new(database)])
    async with await psycopg.AsyncConnection.connect(database.url) as auser:
        await store.aenqueue_in(auser, [new(database)])
    await database.advance(HOUR)
    assert await store.promote(MANY) == 1
    sweep = await store.sweep()
    jobs = await take(store)
    assert len(jobs) == 34
    await store.busy()
    waiting = asyncio.create_task(store.wait(sweep.mark, HOUR))
    async with asyncio.timeout(PROMPT):
        while not store.listening:
            await store.wait((await store.sweep()).mark, SECOND)
    assert await asyncio.to_thread(store.heartbeat, "w", WorkerPulse(), HOUR)
    assert await store.progress(jobs[0].id, 7, Progress(fraction=0.5))
    assert len(await store.held("w")) == 34
    assert await store.cancel_requests("w") == []
    changes = Changes(answer=None, records={"a": {"n": 1}}, enqueue=[new(database)])
    await store.apply(["a"], lambda _records, _now: changes)
    assert await store.records("") == {"a": {"n": 1}}
    await tell_and_hear(store, database, jobs[0])
    async with store.transaction(Transition(id=jobs[0].id, token=7, state=State.COMPLETED)) as db:
        await db.execute("SELECT 1")
    with pytest.raises(LeaseLost):
        async with store.transaction(Transition(id=jobs[0].id, token=7, state=State.COMPLETED)):
            pass
    states = (State.COMPLETED, State.DEAD, State.CANCELLED, State.PENDING, State.SCHEDULED)
    moves = [
        Transition(id=job.id, token=7, state=states[n % 5], due=SECOND)
        for n, job in enumerate(jobs[1:30])
    ]
    assert all(await store.settle(moves))
    assert [job.id for job in jobs].index(keyed.id) == 0
    assert (await store.done("work", "k")) == await store.get(keyed.id)
    assert await store.rescue(worker="w", token=8, limit=MANY) == []
    assert await store.get(jobs[0].id) is not None
    assert len((await store.find(JobFilter(), limit=MANY)).jobs) == 35
    assert sum(each.count for each in await store.counts()) == 35
    assert sum(each.count for each in (await store.depths(MANY)).counts) <= 35
    now = (await store.sweep()).now
    assert sum((await store.arrivals(now - HOUR, now + HOUR, MANY) or {}).values()) <= 35
    assert (await store.standing(jobs[0].id, limit=MANY)).ahead == 0
    assert store.connections is not None
    assert (await store.standing(jobs[0].id, limit=MANY)).ahead == 0
    await store.error_groups(limit=1)
    assert len(await store.workers()) == 1
    assert await store.findings() == []
    await database.advance(5 * DAY)
    assert await store.prune(Retention(finished=DAY, dead=DAY), MANY) >= 2
    await store.retire("w")
    await database.advance(SECOND)
    waiting.cancel()
    await store.close()
