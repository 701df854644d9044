"""Jobs are found alike from one end of all ids, and from the lists of their states."""

from __future__ import annotations

import asyncio
from itertools import product

import pytest

from tests.support.redis_fixtures import ClockedRedis
from windlass.core.jobs.job import ErrorInfo, Job
from windlass.core.jobs.moves import Verb
from windlass.core.jobs.queries import JobFilter
from windlass.core.jobs.states import State
from windlass.store.redis import RedisStore, find
from windlass.testing.conformance import Bench
from windlass.testing.conformance.bench import HOUR, MANY, SECOND

ERROR = ErrorInfo(type="ValueError", message="broken pipe", fingerprint="f1")


async def fill(bench: Bench) -> None:
    for queue, kind in product(("a", "b"), ("mail", "report")):
        for state in State:
            fields = {"queue": queue, "kind": kind}
            if state in (State.SCHEDULED, State.PENDING):
                due = HOUR if state is State.SCHEDULED else None
                await bench.enqueue(due=due, key="k", **fields)
                continue
            job = await bench.start(**fields)
            if state is not State.RUNNING:
                error = ERROR if state is State.DEAD else None
                assert await bench.leave(job, state, error=error)
            await bench.advance(SECOND)
        parked = await bench.enqueue(queue=queue, kind=kind)
        await bench.move(Verb.PARK, parked, waiting_for="flow:1")


FILTERS = [
    JobFilter(states=states, **fields)
    for states in (*((state,) for state in State), (State.RUNNING, State.COMPLETED), tuple(State))
    for fields in (
        {},
        {"queue": "a"},
        {"kind": "mail", "key": "k"},
        {"error": "Error: broken", "fingerprint": "f1"},
        {"worker": "worker-1"},
        {"older_than": 3 * SECOND},
        {"newer_than": 3 * SECOND, "ending": "1"},
    )
]


def test_both_ways_find_the_same(
    redis_clock: ClockedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def pages(store: RedisStore, which: JobFilter, *, oldest_first: bool) -> list[Job]:
        jobs: list[Job] = []
        after = None
        while True:
            page = await store.find(which, limit=2, after=after, oldest_first=oldest_first)
            jobs += page.jobs
            after = page.after
            if after is None:
                return jobs

    async def main() -> None:
        async with redis_clock.opened() as store:
            await fill(Bench(store, redis_clock))
            everything = (await store.find(JobFilter(), limit=MANY)).jobs
            assert {job.state for job in everything} == set(State)
            for which, oldest_first in product(FILTERS, (False, True)):
                monkeypatch.setattr(find, "FEW", MANY)
                few = await pages(store, which, oldest_first=oldest_first)
                monkeypatch.setattr(find, "FEW", 0)
                assert await pages(store, which, oldest_first=oldest_first) == few, which
                assert {job.state for job in few} <= set(which.states)

    asyncio.run(main())
