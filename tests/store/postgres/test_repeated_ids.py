"""A job is never added again: its id is known in every table, for as long as the job is kept."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from uuid import UUID

import psycopg
import pytest

from tests.store.postgres.finished_jobs import MANY, NUMBERS, finish, new, take
from tests.support.clocked_stores import Clocked, opened
from windlass.core.changes import Changes
from windlass.core.jobs.ids import Origin, job_id
from windlass.core.jobs.queries import JobFilter, Retention
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import State

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
PROMPT = 60.0


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
