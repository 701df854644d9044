"""Owns the laws of pruning: which jobs, keys and workers are deleted, and when."""

from __future__ import annotations

from windlass.core.jobs.job import Saga
from windlass.core.jobs.moves import Verb
from windlass.core.jobs.queries import JobFilter, Retention
from windlass.core.jobs.states import FINISHED, LIVE, State
from windlass.testing.conformance.bench import DAY, HOUR, LEASE, MANY, SECOND, Bench
from windlass.testing.conformance.law import law


async def _left(bench: Bench) -> set[State]:
    return {job.state for job in (await bench.store.find(JobFilter(), limit=MANY)).jobs}


@law
async def finished_jobs_are_kept_for_their_time(bench: Bench) -> None:
    """Completed and cancelled jobs go after one retention, dead ones after another."""
    for state in sorted(FINISHED):
        await bench.job_in(state)
    retention = Retention(finished=HOUR, dead=DAY)
    await bench.advance(HOUR - SECOND)
    await bench.store.prune(retention, MANY)
    assert await _left(bench) == FINISHED
    await bench.advance(2 * SECOND)
    assert await bench.store.prune(retention, MANY) >= 2
    assert await _left(bench) == {State.DEAD}
    await bench.advance(DAY)
    assert await bench.store.prune(retention, MANY) >= 1
    assert await _left(bench) == set()


@law
async def retention_counts_from_the_end(bench: Bench) -> None:
    """A job that waited or ran for long is kept as long as any other."""
    job = await bench.start()
    await bench.advance(DAY)
    assert await bench.leave(job)
    await bench.advance(HOUR / 2)
    await bench.store.prune(Retention(finished=HOUR), MANY)
    assert await _left(bench) == {State.COMPLETED}


@law
async def no_retention_keeps_jobs_forever(bench: Bench) -> None:
    """A retention of None keeps jobs forever."""
    for state in sorted(FINISHED):
        await bench.job_in(state)
    await bench.advance(10_000 * DAY)
    await bench.store.prune(Retention(finished=None, dead=None), MANY)
    assert await _left(bench) == FINISHED
    await bench.store.prune(Retention(finished=None, dead=DAY), MANY)
    assert await _left(bench) == FINISHED - {State.DEAD}


@law
async def live_jobs_are_not_pruned(bench: Bench) -> None:
    """Waiting and running jobs stay, however old they are."""
    for state in sorted(LIVE):
        await bench.job_in(state)
    await bench.advance(10_000 * DAY)
    await bench.store.prune(Retention(finished=SECOND, dead=SECOND), MANY)
    assert await _left(bench) == LIVE


@law
async def a_job_that_was_not_undone_is_not_pruned(bench: Bench) -> None:
    """A dead job with steps left to undo waits for a person; once they are undone, it is pruned."""
    job = await bench.start()
    assert await bench.leave(job, State.DEAD, saga=Saga.UNDOING)
    retention = Retention(finished=SECOND, dead=SECOND)
    await bench.advance(DAY)
    await bench.store.prune(retention, MANY)
    assert await bench.state(job.id) is State.DEAD
    assert await bench.move(Verb.REDRIVE, job.id) is not None
    assert await bench.leave(await bench.start_again(job.id), State.DEAD, saga=Saga.OVER)
    await bench.advance(DAY)
    await bench.store.prune(retention, MANY)
    assert await bench.store.get(job.id) is None


@law
async def a_prune_deletes_no_more_than_its_limit(bench: Bench) -> None:
    """A prune respects its limit; the next one continues."""
    for _ in range(5):
        await bench.job_in(State.COMPLETED)
    await bench.advance(DAY)
    retention = Retention(finished=HOUR)
    left = []
    for _ in range(3):
        await bench.store.prune(retention, 2)
        left.append(len((await bench.store.find(JobFilter(), limit=MANY)).jobs))
    assert left == [3, 1, 0]


@law
async def a_prune_with_nothing_to_delete_returns_zero(bench: Bench) -> None:
    """Repeated prunes end with a count of zero."""
    await bench.job_in(State.COMPLETED)
    await bench.advance(DAY)
    assert await bench.store.prune(Retention(finished=HOUR), MANY) >= 1
    assert await bench.store.prune(Retention(finished=HOUR), MANY) == 0


@law
async def ended_workers_are_deleted_eventually(bench: Bench) -> None:
    """A worker that retired long ago is not listed forever; a live one is."""
    retired = await bench.worker()
    await bench.store.retire(retired)
    await bench.store.prune(Retention(), MANY)
    assert [record.info.id for record in await bench.store.workers()] == [retired]
    await bench.advance(400 * DAY)
    living = await bench.worker()
    await bench.store.prune(Retention(), MANY)
    assert [record.info.id for record in await bench.store.workers()] == [living]


@law
async def a_late_worker_is_not_deleted(bench: Bench) -> None:
    """A prune deletes ended leases; one that ran out unnoticed can still be renewed."""
    worker = await bench.worker()
    await bench.advance(LEASE + SECOND)
    await bench.store.prune(Retention(), MANY)
    assert await bench.heartbeat(worker)


@law
async def a_pruned_job_is_gone(bench: Bench) -> None:
    """A deleted job is found nowhere, and no late acknowledgement brings it back."""
    job = await bench.start()
    assert await bench.leave(job)
    await bench.advance(DAY)
    await bench.store.prune(Retention(finished=HOUR), MANY)
    assert await bench.store.get(job.id) is None
    assert not await bench.leave(job)
    assert await bench.store.counts() == []
