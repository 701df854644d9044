"""From this schema to the next, with jobs in every state and a worker that goes on meanwhile.

A released migration is frozen: databases out there were made by it. So a schema is changed by a new
migration, never by a change to an old one, and functions that change come with a new number. A
release that nobody will ever install stands for those to come. Here today's release works under its
schema; in ../test_leftovers.py the next one goes on with what today's has left, and
tests/torture/test_postgres_upgrades.py has real processes of both.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import aclosing
from datetime import timedelta
from hashlib import sha256
from typing import Any, LiteralString
from uuid import UUID

import psycopg
import pytest

from tests.support.app_on_store import serving, until
from tests.support.clocked_stores import opened
from tests.support.database_roles import MAY_ENQUEUE, MAY_WORK, role
from tests.support.releases import NEXT, NEXT_FUNCTIONS, next_scripts, script_of
from windlass import Windlass
from windlass.app.enqueueing.id_generator import IdGenerator
from windlass.core.changes import Changes
from windlass.core.claims.lanes import Ask, Claim
from windlass.core.errors import SchemaMismatch
from windlass.core.jobs.job import Attempt, Job, Lane, NewJob, Progress, UniqueKey
from windlass.core.jobs.moves import Move, Verb
from windlass.core.jobs.queries import Retention
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import State
from windlass.core.workers import WorkerInfo
from windlass.store.postgres import PostgresStore
from windlass.store.postgres import migrate as schema

FROZEN = {1: "0d2841ad8762b105eb091aeec302e2afb6dd6ce85d5b32d9d6b981972236f445"}
"""The SHA-256 of every migration. Until the first release, this is where to follow a change."""
FROZEN_FUNCTIONS = {1: "2df4f6b5ce00c9e51977f61c4d9839abb0dff0fb94ceadbf90652de6d210a7da"}
"""The digests of the functions of every schema; today's are the last."""
HOUR = timedelta(hours=1)
IDS = IdGenerator()


def execute(url: str, script: str) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(script.encode())


def new(kind: str = "idle", **fields: Any) -> NewJob:
    base: dict[str, Any] = {"id": IDS.next(), "kind": kind, "payload": b"{}"}
    return NewJob(**base | fields)


async def jobs_in_every_state(store: PostgresStore) -> dict[UUID, Job]:
    """Make jobs in every state, with all that a job can have; a worker elsewhere holds some."""
    info = WorkerInfo(id="away", name="a", host="h", pid=1, release="1", lease=HOUR, slots=9)
    await store.register(info)
    made = [new(max_retries=3, timeout=HOUR, headers={"a": "b"}, key="k") for _ in range(8)]
    await store.enqueue(made)
    ask = Ask(lane=Lane("default", "idle", 0, "k"), count=8)
    jobs = await store.claim(Claim(asks=(ask,)), worker="away", token=7)
    ends = (State.COMPLETED, State.CANCELLED, State.DEAD, State.SCHEDULED, State.PENDING)
    moves = [
        Transition(
            id=job.id,
            token=7,
            state=state,
            due=HOUR if state is State.SCHEDULED else None,
            attempt=Attempt(
                number=1, worker="away", started_at=job.started_at, duration=HOUR, outcome="failed"
            ),
        )
        for job, state in zip(jobs, ends, strict=False)
    ]
    assert all(await store.settle(moves))
    await store.enqueue([new(unique=UniqueKey(key="held")), new(due=HOUR), new(expires=HOUR)])
    assert await store.progress(jobs[5].id, 7, Progress(fraction=0.5))
    await store.apply([], lambda _records, _now: Changes(answer=None, records={"a": {"n": 1}}))
    return await everything(store)


async def everything(store: PostgresStore) -> dict[UUID, Job]:
    found: dict[UUID, Job] = {}
    async with await psycopg.AsyncConnection.connect(store._conninfo) as db:
        rows = await db.execute("SELECT id FROM windlass.job_queue WHERE job_type = 'idle'")
        for (id_,) in await rows.fetchall():
            job = await store.get(id_)
            assert job is not None
            found[id_] = job
    return found


async def moved(store: PostgresStore, verb: Verb, job: Job) -> Job | None:
    changes = Changes(answer=None, moves=[Move(verb=verb, id=job.id)])
    applied = await store.apply([], lambda _records, _now: changes)
    return applied.moved[0]


async def still_works(store: PostgresStore, before: dict[UUID, Job]) -> None:
    """See that jobs made before can still be moved wherever they may go."""
    by_state: dict[State, list[Job]] = {}
    for job in before.values():
        by_state.setdefault(job.state, []).append(job)
    assert set(by_state) == set(State)
    ends = (State.COMPLETED, State.DEAD, State.CANCELLED)
    moves = [
        Transition(id=job.id, token=7, state=state, result=b"1")
        for job, state in zip(by_state[State.RUNNING], ends, strict=True)
    ]
    assert all(await store.settle(moves))
    for verb, job in (
        (Verb.REDRIVE, by_state[State.DEAD][0]),
        (Verb.CANCEL, by_state[State.PENDING][0]),
        (Verb.CANCEL, by_state[State.SCHEDULED][0]),
    ):
        assert await moved(store, verb, job) is not None
    (again,) = await store.enqueue([new(unique=UniqueKey(key="held"))])
    assert again.is_duplicate
    assert len((await store.sweep()).heads) >= 1
    assert await store.records("a") == {"a": {"n": 1}}
    await store.prune(Retention(finished=timedelta(0), dead=timedelta(0)), 1_000)
    assert len(await everything(store)) == len(before) - 7


def test_released_migrations_are_frozen() -> None:
    """A change to an old migration never reaches the databases that it has made."""
    hashes = {step.number: sha256(step.sql.encode()).hexdigest() for step in schema.MIGRATIONS}
    assert hashes == FROZEN, "add a migration instead; before the first release, update FROZEN"


def test_functions_that_change_come_with_a_new_schema() -> None:
    """Else two releases with one number would each call the other's functions wrong."""
    assert list(FROZEN_FUNCTIONS) == [step.number for step in schema.MIGRATIONS]
    assert schema.functions_digest() == FROZEN_FUNCTIONS[schema.WANTED], (
        "add a migration, if only with its head; before the first release, update FROZEN_FUNCTIONS"
    )


def test_a_worker_goes_on_while_the_next_schema_is_made(postgres_url: str) -> None:
    """Case 19. Nothing is lost, nothing runs twice, and jobs in every state are what they were."""
    runs: Counter[int] = Counter()
    app = Windlass(postgres_url)

    @app.job
    async def count(number: int) -> None:
        runs[number] += 1

    async def main() -> None:
        async with opened(postgres_url) as store, aclosing(app):
            await store.migrate()
            before = await jobs_in_every_state(store)
            sent = 0

            async def produce() -> None:
                nonlocal sent
                while not enough.is_set():
                    await count.aenqueue(number=sent)
                    sent += 1

            enough = asyncio.Event()
            async with serving(app, concurrency=20):
                producing = asyncio.create_task(produce())
                await until(lambda: producing.done() or runs.total() >= 50, within=60)
                await asyncio.to_thread(execute, postgres_url, next_scripts())
                reached = runs.total() + 100
                await until(lambda: producing.done() or runs.total() >= reached, within=60)
                enough.set()
                await producing
                await until(lambda: len(runs) == sent, within=60)
            assert await everything(store) == before
            await still_works(store, before)
            assert (await store.schema()).found == NEXT.number
        assert set(runs.values()) == {1}

    asyncio.run(main())


def test_a_worker_that_owns_nothing_needs_no_new_grant_to_go_on(migrated_url: str) -> None:
    """Prevents: a job of the new release that cannot be completed until somebody grants more."""

    async def main(url: str) -> None:
        async with opened(url) as worker:
            info = WorkerInfo(id="w", name="w", host="h", pid=1, release="1", lease=HOUR, slots=9)
            await worker.register(info)
            await worker.enqueue([new()])
            ask = Ask(lane=Lane("default", "idle"), count=1)
            (job,) = await worker.claim(Claim(asks=(ask,)), worker="w", token=7)
            done = Transition(id=job.id, token=7, state=State.DEAD)
            assert await worker.settle([done]) == [True]

    def may_call(role_url: str, function: LiteralString) -> bool:
        with psycopg.connect(role_url) as db:
            asked = db.execute("SELECT has_function_privilege(%s, 'execute')", (function,))
            return bool((asked.fetchone() or (False,))[0])

    with role(migrated_url, MAY_WORK) as url, role(migrated_url, MAY_ENQUEUE) as producer:
        execute(migrated_url, next_scripts())
        asyncio.run(main(url))
        assert may_call(url, "windlass.noted()")
        assert not may_call(producer, "windlass.noted()")


def test_functions_of_another_release_are_refused_until_they_are_migrated(
    migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: a worker that calls functions of another text than it was tested with."""
    changed = {**schema.FUNCTIONS, "noted": NEXT_FUNCTIONS["noted"]}

    async def main() -> None:
        async with opened(migrated_url) as store, opened(migrated_url) as late:
            await store.open()
            monkeypatch.setattr(schema, "FUNCTIONS", changed)
            with pytest.raises(SchemaMismatch, match="run: windlass migrate"):
                await late.open()
            (step,) = await late.migrations()
            assert step.name == "functions"
            assert await late.migrate() == [f"{schema.WANTED:04}_functions"]
            await late.open()
            assert await late.migrate() == []
            assert await late.migrations() == []

    asyncio.run(main())
    with psycopg.connect(migrated_url) as db:
        assert db.execute("SELECT windlass.noted()").fetchone() == (1,)
        public = "SELECT has_function_privilege('public', 'windlass.noted()', 'execute')"
        assert db.execute(public).fetchone() == (False,)


def test_a_printed_script_gives_up_by_itself_while_a_report_reads_jobs(
    migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: an ALTER TABLE waits for the report without limit, and every enqueue behind it."""
    monkeypatch.setattr(schema, "_LOCK_TIMEOUT", "50ms")
    with psycopg.connect(migrated_url) as report:
        report.execute("SELECT count(*) FROM windlass.jobs")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            execute(f"{migrated_url}?options=-cstatement_timeout%3D5s", script_of(NEXT))
    execute(migrated_url, script_of(NEXT))


def test_a_printed_script_waits_only_briefly_for_another_migration(
    migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "_LOCK_TIMEOUT", "50ms")
    with psycopg.connect(migrated_url) as other:
        other.execute("LOCK TABLE windlass.migrations IN SHARE ROW EXCLUSIVE MODE")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            execute(f"{migrated_url}?options=-cstatement_timeout%3D5s", script_of(NEXT))


def test_no_printed_script_is_applied_twice_or_without_the_one_before(migrated_url: str) -> None:
    """Prevents: psql goes on after a step that gave up, and applies the one after it."""
    later = NEXT._replace(number=NEXT.number + 1)
    with pytest.raises(psycopg.errors.RaiseException, match=f"is not at step {NEXT.number}"):
        execute(migrated_url, script_of(later))
    execute(migrated_url, script_of(NEXT))
    with pytest.raises(psycopg.errors.RaiseException, match="is not at step"):
        execute(migrated_url, script_of(NEXT))
    execute(migrated_url, script_of(later._replace(sql="-- Serves all: oldest 1.\n")))


def test_the_first_printed_script_takes_no_rights_from_what_others_have_there(
    postgres_url: str,
) -> None:
    """What is in the schema is for nobody afterwards, so nothing may be there before."""
    execute(postgres_url, "CREATE SCHEMA windlass")
    mine = "CREATE FUNCTION windlass.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'"
    execute(postgres_url, mine)
    with pytest.raises(psycopg.errors.RaiseException, match="already contains other objects"):
        execute(postgres_url, script_of(schema.MIGRATIONS[0]))
    execute(postgres_url, "DROP FUNCTION windlass.mine")
    execute(postgres_url, script_of(schema.MIGRATIONS[0]))


def test_a_release_that_is_too_old_for_the_next_schema_refuses_it(postgres_url: str) -> None:
    """A store that is open stays so, until its worker looks; the next one is told what to do."""
    closed = NEXT._replace(sql=NEXT.sql.replace("oldest 1.", f"oldest {NEXT.number}."))

    async def main() -> None:
        async with opened(postgres_url) as running, opened(postgres_url) as late:
            await running.migrate()
            await running.open()
            execute(postgres_url, script_of(closed))
            await running.open()
            with pytest.raises(SchemaMismatch, match="upgrade windlass here"):
                await late.open()

    asyncio.run(main())
