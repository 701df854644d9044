"""Owns the laws of stores that outlive a process or are shared by several."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime

from windlass.core.changes import Changes
from windlass.core.claims.lanes import Ask, Claim
from windlass.core.jobs.job import Job, Lane, UniqueKey
from windlass.core.jobs.queries import JobFilter
from windlass.core.jobs.states import State
from windlass.core.records import Json
from windlass.store.protocol import Store
from windlass.testing.conformance.bench import HOUR, MANY, Bench, attempt_of, leaving
from windlass.testing.conformance.law import law


async def _claim(bench: Bench, store: Store, worker: str, most: int) -> list[Job]:
    claim = Claim(asks=(Ask(lane=Lane("default", "work"), count=most),))
    return await store.claim(claim, worker=worker, token=bench.number())


@law(needs="durable")
async def everything_survives_a_close(bench: Bench) -> None:
    """Jobs in every state, keys, records and leases are there when the store is opened again."""
    worker = await bench.worker()
    running = await bench.start(worker, unique=UniqueKey(key="k"))
    again = await bench.start()
    assert await bench.leave(again, State.SCHEDULED, due=HOUR, attempt=attempt_of(again))
    await bench.job_in(State.DEAD)
    changes = Changes(answer=None, records={"a": {"n": 1}})
    await bench.store.apply(["a"], lambda _records, _now: changes)
    before = await bench.store.find(JobFilter(), limit=MANY)
    await bench.store.close()
    await bench.store.open()
    assert await bench.store.find(JobFilter(), limit=MANY) == before
    assert await bench.store.records("") == {"a": {"n": 1}}
    assert (await bench.add(unique=UniqueKey(key="k"))).id == running.id
    assert await bench.heartbeat(worker)
    assert await bench.leave(running)


@law(needs="shared")
async def a_sibling_sees_the_same_jobs(bench: Bench) -> None:
    """A process reads the values that another wrote unchanged."""
    jobs = [await bench.job_in(state) for state in State]
    async with bench.sibling() as sibling:
        assert [await sibling.get(job.id) for job in jobs] == jobs
        assert await sibling.counts() == await bench.store.counts()
        assert (await sibling.sweep()).heads == (await bench.store.sweep()).heads


@law(needs="shared")
async def siblings_claim_no_job_twice(bench: Bench) -> None:
    """Claims from several processes at once share no job."""
    jobs = {await bench.enqueue() for _ in range(60)}
    worker, other = await bench.worker(), await bench.worker()
    async with bench.sibling() as sibling:
        pairs = [(bench.store, worker), (sibling, other)] * 6
        claims = await asyncio.gather(*(_claim(bench, store, who, most=5) for store, who in pairs))
    claimed = [job.id for batch in claims for job in batch]
    assert len(claimed) == len(set(claimed)), "a job was claimed twice"
    assert set(claimed) == jobs


@law(needs="shared")
async def the_fence_holds_between_siblings(bench: Bench) -> None:
    """A job settled by one process is not settled again by another."""
    job = await bench.start()
    async with bench.sibling() as sibling:
        assert await sibling.settle([leaving(job, State.DEAD)]) == [True]
        assert await bench.store.settle([leaving(job)]) == [False]
    assert await bench.state(job.id) is State.DEAD


@law(needs="shared")
async def siblings_lose_no_update_of_a_record(bench: Bench) -> None:
    """Reducers in several processes see each other's records."""

    def increment(records: Mapping[str, Json], _now: datetime) -> Changes[None]:
        count = records.get("counter", {"n": 0})["n"] + 1
        return Changes(answer=None, records={"counter": {"n": count}})

    async with bench.sibling() as sibling:
        stores = [bench.store, sibling] * 20
        await asyncio.gather(*(store.apply(["counter"], increment) for store in stores))
    assert await bench.store.records("counter") == {"counter": {"n": 40}}


@law(needs="shared")
async def a_unique_key_has_one_holder_among_siblings(bench: Bench) -> None:
    """Producers in several processes that race for a key agree on its holder."""
    async with bench.sibling() as sibling:
        stores = [bench.store, sibling] * 10
        answers = await asyncio.gather(
            *(store.enqueue([bench.new(unique=UniqueKey(key="k"))]) for store in stores)
        )
    assert len({answer.id for (answer,) in answers}) == 1
    assert [answer.is_duplicate for (answer,) in answers].count(False) == 1


@law(needs="shared")
async def a_sibling_finds_jobs_enqueued_since_its_sweep(bench: Bench) -> None:
    """Polling is the truth: the next sweep shows another process's jobs without a wake-up."""
    async with bench.sibling() as sibling:
        assert (await sibling.sweep()).heads == ()
        await bench.enqueue()
        (head,) = (await sibling.sweep()).heads
        assert head.lane == Lane("default", "work")
