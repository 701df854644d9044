"""A notification names the queues of its jobs, so that a worker need not look at all lanes."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import count
from uuid import UUID

import psycopg
import pytest

from tests.support.clocked_stores import Clocked, opened
from windlass.core.claims.lanes import Sweep
from windlass.core.jobs.ids import job_id
from windlass.core.jobs.job import Lane, NewJob
from windlass.store.postgres import PostgresStore
from windlass.store.postgres.lane_cache import LaneCache

HOUR = timedelta(hours=1)
PATIENCE = 60.0
SLEEPER = "INSERT INTO windlass.sleepers (id, until) VALUES ('one', 'infinity')"
NUMBERS = count(1)


def new(queue: str) -> NewJob:
    return NewJob(id=job_id(1, next(NUMBERS)), kind="work", queue=queue, payload=b"{}")


async def notified(database: Clocked, queues: list[str]) -> list[str]:
    """Return what a listener hears when jobs of these queues are enqueued together."""
    with psycopg.connect(database.url, autocommit=True) as db:
        db.execute(SLEEPER)
        db.execute("LISTEN windlass_jobs")
        async with opened(database.url, listen_url="off") as store:
            await store.enqueue([new(queue) for queue in queues])
        return [notice.payload for notice in db.notifies(timeout=PATIENCE, stop_after=1)]


@pytest.mark.parametrize(
    ("queues", "payload"),
    [
        (["mail"], 'one ["mail"]'),
        (["mail", "two words", "mail"], 'one ["mail","two words"]'),
        ([f"queue-{n}" for n in range(21)], "one"),
        ([chr(97 + n) * 200 for n in range(20)], "one"),
    ],
    ids=["one queue", "several", "too many", "too long"],
)
def test_a_notification_names_the_queues_behind_the_sleepers_if_they_are_few(
    queues: list[str], payload: str, database: Clocked
) -> None:
    assert asyncio.run(notified(database, queues)) == [payload]


async def asleep_beside(store: PostgresStore, lanes: int) -> Sweep:
    """Let a process that knows many lanes fall asleep."""
    await store.enqueue([new(f"other-{n}") for n in range(lanes)])
    while not store.listening:
        await store.wait(0, timedelta(milliseconds=10))
    sweep = await store.sweep()
    # The first wait registers it as a sleeper, and makes a sweep due.
    await store.wait(sweep.mark, HOUR)
    return await store.sweep()


async def found(store: PostgresStore, lane: Lane, sweep: Sweep) -> None:
    async with asyncio.timeout(PATIENCE):
        while lane not in [head.lane for head in sweep.heads]:
            await store.wait(sweep.mark, HOUR)
            sweep = await store.sweep(fresh=False)


def test_a_worker_that_knows_many_lanes_finds_a_job_in_an_empty_one_without_a_sweep(
    database: Clocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: the job waits until a sweep of all lanes is due again."""

    async def main() -> None:
        async with opened(database.url) as store, opened(database.url) as producer:
            sweep = await asleep_beside(store, 200)
            monkeypatch.setattr(LaneCache, "is_due", lambda _self, _now: False)
            await producer.enqueue([new("mail")])
            await found(store, Lane("mail", "work"), sweep)

    asyncio.run(main())


def test_a_notification_that_cannot_be_read_wakes_the_worker_nevertheless(
    database: Clocked,
) -> None:
    """Any role may notify; the worker goes on to listen."""

    async def main() -> None:
        async with opened(database.url) as store, opened(database.url) as producer:
            sweep = await asleep_beside(store, 200)
            ids: list[tuple[str]] = database.db.execute(
                "SELECT id FROM windlass.sleepers"
            ).fetchall()
            for names in ("[", "[1]", '["a"', "[]"):
                mark = store._here().listener.mark
                text = f"{ids[0][0]} {names}"
                database.db.execute("SELECT pg_notify('windlass_jobs', %s)", [text])
                async with asyncio.timeout(PATIENCE):
                    while store._here().listener.mark == mark:
                        await store.wait(mark, timedelta(milliseconds=50))
            assert store.listening
            await producer.enqueue([new("mail")])
            await found(store, Lane("mail", "work"), sweep)

    asyncio.run(main())


def test_a_look_that_fails_leaves_its_queues_to_a_sweep(
    database: Clocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: a job waits for the next poll because the connection broke after its wake-up."""

    async def main() -> None:
        async with opened(database.url) as store:
            await asleep_beside(store, 200)
            here = store._here()
            lanes = here.lanes.of(None, 0.0)
            here.lanes.woken(1e12, ["mail"])

            async def fail(*_args: object, **_kwargs: object) -> None:
                raise asyncio.CancelledError

            monkeypatch.setattr(here.pipeline, "send", fail)
            with pytest.raises(asyncio.CancelledError):
                await store.sweep(fresh=False)
            monkeypatch.undo()
            assert lanes.is_due(0.0)

    asyncio.run(main())


def test_an_older_worker_finds_its_id_in_a_notification_with_queues() -> None:
    """Releases before queues were named split the text at its blanks."""
    ids = [UUID(int=n).hex[-16:] for n in range(3)]
    payload = " ".join(ids) + ' ["mail","two words"]'
    assert all(each in payload.split(" ") for each in ids)
