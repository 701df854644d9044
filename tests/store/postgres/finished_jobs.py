"""Owns how tests of the tables make jobs, take them and finish them."""

from __future__ import annotations

from datetime import timedelta
from itertools import count
from typing import Any

from tests.support.clocked_stores import Clocked
from windlass.core.claims.lanes import Ask, Claim
from windlass.core.jobs.ids import job_id
from windlass.core.jobs.job import Job, Lane, NewJob
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import State
from windlass.core.workers import WorkerInfo
from windlass.store.postgres import PostgresStore

LEASE = timedelta(days=10_000)
LANE = Lane("default", "work")
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
