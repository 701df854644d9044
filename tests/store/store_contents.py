"""Owns everything that a store shows, and how a job may follow on itself."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from tests.store.random_requests import EVERYTHING, KINDS, LEASE
from windlass.core.jobs.job import Job
from windlass.core.jobs.queries import JobFilter
from windlass.core.jobs.states import FINISHED, State
from windlass.core.stats.depths import QueueCount
from windlass.core.workers import WorkerInfo, WorkerPulse
from windlass.store.protocol import Store

PATIENCE = timedelta(seconds=10)


def check_successor(before: Job, after: Job | None) -> None:
    """A live job is never lost, and an ended one stays as it is, but for a dead one's redrive."""
    if after is None:
        assert before.state in FINISHED, f"a {before.state} job is gone"
        return
    assert after.attempt >= before.attempt
    if before.state in FINISHED and after != before:
        assert (before.state, after.state) == (State.DEAD, State.PENDING)
        assert (after.failures, after.crashes) == (0, 0)
        assert after.history == before.history


def worker_info(worker: str) -> WorkerInfo:
    return WorkerInfo(id=worker, name=worker, host="here", pid=1, release="1", lease=LEASE, slots=4)


async def heartbeat(store: Store, worker: str, pulse: WorkerPulse) -> bool:
    return await asyncio.to_thread(store.heartbeat, worker, pulse, PATIENCE)


async def contents(store: Store) -> tuple[tuple[Job, ...], list[QueueCount], object]:
    """Return everything that a store shows, put in an order that all share."""
    jobs = (await store.find(JobFilter(), limit=EVERYTHING)).jobs
    sweep = await store.sweep()
    heads = sorted((head.lane, head.position) for head in sweep.heads)
    served = await store.sweep(queues=frozenset(head.lane.queue for head in sweep.heads))
    assert sorted((head.lane, head.position) for head in served.heads) == heads
    known = {record.info.id: record for record in await store.workers()}
    requests = {worker: sorted(await store.cancel_requests(worker)) for worker in known}
    done = [await store.done(kind, key) for kind in KINDS for key in ("1", "2")]
    rest = (heads, sweep.next_due, sweep.now, known, requests, await store.records(""), done)
    return jobs, await store.counts(), rest


async def next_due_of(store: Store) -> datetime | None:
    return (await store.sweep()).next_due
