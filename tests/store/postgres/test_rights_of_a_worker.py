"""A worker needs rows and functions, and runs no DDL."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.store.postgres.finished_jobs import MANY, new, take
from tests.support.clocked_stores import Clocked
from tests.support.database_roles import MAY_WORK, role
from windlass.core.changes import Changes
from windlass.core.errors import LeaseLost
from windlass.core.jobs.job import IDEMPOTENCY_KEY, Checkpoint, Job, Progress, UniqueKey
from windlass.core.jobs.queries import JobFilter, Retention
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import State
from windlass.core.jobs.streams import BEGIN, Appended, ChunkGroup
from windlass.core.records import News
from windlass.core.workers import WorkerPulse
from windlass.store.postgres import PostgresStore
from windlass.store.protocol import Store

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
PROMPT = 60.0


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
