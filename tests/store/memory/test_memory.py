"""What only the memory store promises: bounds, back-pressure, and a memory that does not grow."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from windlass.core.changes import Changes
from windlass.core.claims.lanes import Ask, Claim
from windlass.core.errors import QueueFull
from windlass.core.jobs.ids import job_id
from windlass.core.jobs.job import Lane, NewJob
from windlass.core.jobs.moves import Move, Verb
from windlass.core.jobs.queries import JobFilter, Retention
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import State
from windlass.core.records import Json
from windlass.core.workers import WorkerInfo
from windlass.store.memory import MemoryStore

SHORT = timedelta(milliseconds=20)
LANE = Lane("default", "work")


def new(number: int, **fields: Any) -> NewJob:
    base: dict[str, Any] = {"id": job_id(number, number), "kind": "work", "payload": b"{}"}
    return NewJob(**base | fields)


async def worker(store: MemoryStore) -> str:
    lease = timedelta(hours=1)
    info = WorkerInfo(id="w", name="w", host="h", pid=1, release="1", lease=lease, slots=10)
    await store.register(info)
    return "w"


async def drain(store: MemoryStore, count: int) -> int:
    """Claim and complete some jobs."""
    claim = Claim(asks=(Ask(lane=LANE, count=count),))
    jobs = await store.claim(claim, worker=await worker(store), token=1)
    await store.settle([Transition(id=job.id, token=1, state=State.COMPLETED) for job in jobs])
    return len(jobs)


def test_a_blocking_producer_is_let_in_as_soon_as_there_is_room() -> None:
    store = MemoryStore(size=1)
    store.enqueue_blocking([new(1)], SHORT)
    entered = threading.Event()

    def produce() -> None:
        store.enqueue_blocking([new(2)], timedelta(seconds=10))
        entered.set()

    thread = threading.Thread(target=produce)
    thread.start()
    assert asyncio.run(drain(store, 1)) == 1
    assert entered.wait(10)
    thread.join(60)


def test_a_producer_that_gave_up_leaves_no_job_behind() -> None:
    store = MemoryStore(size=1)

    async def main() -> None:
        await store.enqueue([new(1)])
        with pytest.raises(QueueFull):
            await asyncio.to_thread(store.enqueue_blocking, [new(2)], SHORT)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(store.enqueue([new(3)]), 0.02)
        assert await drain(store, 10) == 1
        assert await store.get(job_id(2, 2)) is None
        assert await store.get(job_id(3, 3)) is None

    asyncio.run(main())


def test_producers_are_let_in_in_their_order() -> None:
    store = MemoryStore(size=2)
    order: list[int] = []

    async def produce(number: int, count: int) -> None:
        await store.enqueue([new(number * 10 + n) for n in range(count)])
        order.append(number)

    async def main() -> None:
        await store.enqueue([new(1), new(2)])
        tasks = []
        for number, count in ((3, 2), (4, 1), (5, 1)):
            tasks.append(asyncio.create_task(produce(number, count)))
            await asyncio.sleep(0)
        for _ in range(6):
            await drain(store, 1)
            await asyncio.sleep(0.001)
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert order == [3, 4, 5]


def test_running_and_finished_jobs_take_no_room() -> None:
    store = MemoryStore(size=2)

    async def main() -> None:
        for round_ in range(5):
            await store.enqueue([new(round_ * 2 + 1), new(round_ * 2 + 2)])
            assert await drain(store, 2) == 2

    asyncio.run(main())


def test_finished_jobs_are_forgotten_oldest_first() -> None:
    store = MemoryStore(size=1000, kept=10)

    async def main() -> None:
        await store.enqueue([new(n + 1) for n in range(25)])
        assert await drain(store, 25) == 25
        jobs = (await store.find(JobFilter(), limit=100)).jobs
        assert [job.id for job in jobs] == [job_id(n, n) for n in range(25, 15, -1)]

    asyncio.run(main())


def test_pruning_and_forgetting_do_not_get_in_each_others_way() -> None:
    store = MemoryStore(size=1000, kept=5)

    async def main() -> None:
        await store.enqueue([new(n + 1) for n in range(4)])
        await drain(store, 4)
        await store.prune(Retention(finished=timedelta(0)), 100)
        await store.enqueue([new(n + 10) for n in range(8)])
        assert await drain(store, 8) == 8
        assert len((await store.find(JobFilter(), limit=100)).jobs) == 5

    asyncio.run(main())


def test_dead_jobs_are_kept_and_a_redriven_one_runs_again() -> None:
    store = MemoryStore(size=10)

    async def main() -> None:
        await store.enqueue([new(1)])
        claim = Claim(asks=(Ask(lane=LANE, count=1),))
        (job,) = await store.claim(claim, worker=await worker(store), token=1)
        await store.settle([Transition(id=job.id, token=1, state=State.DEAD)])
        changes = Changes(answer=None, moves=[Move(verb=Verb.REDRIVE, id=job.id)])
        await store.apply([], lambda _known, _now: changes)
        assert await drain(store, 1) == 1

    asyncio.run(main())


def test_an_idle_wait_leaves_nothing_behind() -> None:
    """Prevents: a worker that polls an empty queue for a week fills the memory with its waits."""
    store = MemoryStore()

    async def main() -> None:
        mark = (await store.sweep()).mark
        for _ in range(100):
            await store.wait(mark, timedelta(0))

    asyncio.run(main())
    assert len(store._waiters) <= 1


def cancelling(job: UUID, _known: Mapping[str, Json], _now: datetime) -> Changes[None]:
    return Changes(answer=None, moves=[Move(verb=Verb.CANCEL, id=job)])


def test_nothing_is_kept_of_lanes_that_are_empty() -> None:
    store = MemoryStore()

    async def main() -> None:
        for number in range(1, 51):
            await store.enqueue([new(number, kind=f"kind {number}")])
        for number in range(1, 51):
            await store.apply([], partial(cancelling, job_id(number, number)))
        assert (await store.sweep()).heads == ()

    asyncio.run(main())
    assert len(store._tables.jobs._lanes) == 0
