"""Owns the laws of rescue: which jobs are taken over, by which worker, and the fence."""

from __future__ import annotations

import asyncio

from windlass.core.jobs.job import Job, Progress
from windlass.core.jobs.moves import Verb
from windlass.core.jobs.queries import Retention
from windlass.core.jobs.states import State
from windlass.testing.conformance.bench import DAY, LEASE, MANY, SECOND, Bench, ids
from windlass.testing.conformance.law import law


async def _rescue(bench: Bench, worker: str, *, limit: int = MANY) -> list[Job]:
    return await bench.store.rescue(worker=worker, token=bench.number(), limit=limit)


@law
async def a_rescue_takes_the_jobs_of_a_lost_worker(bench: Bench) -> None:
    """The job comes as its holder left it, but under a token of the rescuer."""
    lost = await bench.start()
    rescuer = await bench.seasoned()
    (rescued,) = await bench.store.rescue(worker=rescuer, token=77, limit=MANY)
    assert rescued.id == lost.id
    assert rescued.state is State.RUNNING
    assert (rescued.worker, rescued.attempt) == (lost.worker, lost.attempt)
    assert rescued.started_at == lost.started_at
    assert rescued.token == 77
    assert (rescued.failures, rescued.crashes) == (0, 0), "what it costs is the settle's to say"


@law
async def a_rescued_job_is_the_rescuers_to_settle(bench: Bench) -> None:
    """The new token settles the job, as any other."""
    lost = await bench.start()
    (rescued,) = await _rescue(bench, await bench.seasoned())
    assert await bench.leave(rescued, State.PENDING, crashes=1, reason="lost")
    assert (await bench.job(lost.id)).crashes == 1
    assert (await bench.start_again(lost.id)).attempt == 2


@law
async def a_lost_holder_is_fenced_out(bench: Bench) -> None:
    """After a rescue the old token writes nothing, before and after the rescuer settled."""
    lost = await bench.start()
    assert lost.token is not None
    (rescued,) = await _rescue(bench, await bench.seasoned())
    for _ in range(2):
        assert not await bench.leave(lost)
        assert not await bench.store.progress(lost.id, lost.token, Progress(fraction=1))
        await bench.leave(rescued, State.PENDING)
    assert await bench.state(lost.id) is State.PENDING


@law
async def jobs_of_live_workers_are_not_rescued(bench: Bench) -> None:
    """Jobs of workers that renew their leases are left alone, however long they run."""
    holder, rescuer = await bench.worker(), await bench.worker()
    job = await bench.start(holder)
    for _ in range(3):
        await bench.season(holder, rescuer)
        assert await _rescue(bench, rescuer) == []
    assert await bench.heartbeat(holder)
    assert await bench.job(job.id) == job
    assert await bench.leave(job)


@law
async def a_rescue_takes_running_jobs_only(bench: Bench) -> None:
    """A waiting or ended job needs no rescue, whatever happened to its last holder."""
    for state in sorted(set(State) - {State.RUNNING}):
        await bench.job_in(state)
    assert await _rescue(bench, await bench.seasoned()) == []


@law
async def a_job_is_rescued_once(bench: Bench) -> None:
    """While its rescuer lives, a job is not rescued again, not even by the same worker."""
    await bench.start()
    one, two = await bench.worker(), await bench.worker()
    await bench.season(one, two)
    assert len(await _rescue(bench, one)) == 1
    assert await _rescue(bench, two) == []
    assert await _rescue(bench, one) == []


@law
async def rescues_at_the_same_time_share_no_job(bench: Bench) -> None:
    """However many workers rescue at once, each job goes to one of them."""
    lost = await bench.worker()
    jobs = [(await bench.start(lost)).id for _ in range(20)]
    rescuers = [await bench.worker() for _ in range(4)]
    await bench.season(*rescuers)
    rescues = await asyncio.gather(*(_rescue(bench, rescuer) for rescuer in rescuers))
    assert sorted(job.id for batch in rescues for job in batch) == sorted(jobs)


@law
async def a_retired_workers_jobs_are_free_to_be_rescued(bench: Bench) -> None:
    """A worker that retires frees its jobs at once, though its lease had time left."""
    rescuer = await bench.seasoned()
    leaver, stayer = await bench.worker(), await bench.worker()
    job, _ = await bench.start(leaver), await bench.start(stayer)
    assert await _rescue(bench, rescuer) == []
    await bench.store.retire(leaver)
    assert ids(await _rescue(bench, rescuer)) == [job.id]


@law
async def jobs_of_an_unknown_worker_are_rescued(bench: Bench) -> None:
    """A running job whose worker is unknown is an orphan like others."""
    lost = await bench.worker()
    job = await bench.start(lost)
    await bench.store.retire(lost)
    await bench.advance(400 * DAY)
    await bench.store.prune(Retention(), MANY)
    assert ids(await _rescue(bench, await bench.seasoned())) == [job.id]


@law
async def a_worker_that_began_just_now_may_not_rescue(bench: Bench) -> None:
    """Only a whole lease of renewals without a gap gives the right to rescue."""
    job = await bench.start()
    await bench.advance(LEASE + SECOND)
    novice = await bench.worker()
    assert await _rescue(bench, novice) == []
    await bench.advance(LEASE / 2)
    assert await bench.heartbeat(novice)
    assert await _rescue(bench, novice) == []
    await bench.advance(LEASE / 2)
    assert await bench.heartbeat(novice)
    assert ids(await _rescue(bench, novice)) == [job.id]


@law
async def a_worker_that_may_not_rescue_ends_no_lease(bench: Bench) -> None:
    """The rescue of a new worker does not end leases that are only late."""
    late = await bench.worker()
    job = await bench.start(late)
    await bench.advance(LEASE + SECOND)
    assert await _rescue(bench, await bench.worker()) == []
    assert await _rescue(bench, "nobody") == []
    assert await bench.heartbeat(late)
    assert await bench.leave(job)


@law
async def after_an_outage_jobs_of_live_workers_are_not_rescued(bench: Bench) -> None:
    """After an outage in which no lease was renewed, every worker has to earn the right again."""
    one, two = await bench.worker(), await bench.worker()
    jobs = [await bench.start(one), await bench.start(two)]
    await bench.season(one, two)
    await bench.advance(LEASE + SECOND)
    assert await _rescue(bench, one) == [], "its own lease has run out"
    assert await bench.heartbeat(one)
    assert await _rescue(bench, one) == [], "the gap was longer than the lease"
    assert await bench.heartbeat(two)
    await bench.season(one, two)
    assert await _rescue(bench, one) == []
    assert [await bench.leave(job) for job in jobs] == [True, True]


@law
async def a_gap_costs_one_lease_of_waiting(bench: Bench) -> None:
    """After a gap the right to rescue comes back with the next whole lease of renewals."""
    rescuer = await bench.seasoned()
    await bench.advance(LEASE + SECOND)
    assert await bench.heartbeat(rescuer)
    job = await bench.start(await bench.worker())
    await bench.season(rescuer)
    assert ids(await _rescue(bench, rescuer)) == [job.id]


@law
async def a_worker_without_a_lease_may_not_rescue(bench: Bench) -> None:
    """A retired or silent worker gets nothing, however long it served."""
    await bench.start()
    silent, retired = await bench.worker(), await bench.worker()
    await bench.season(silent, retired)
    await bench.store.retire(retired)
    assert await _rescue(bench, retired) == []
    await bench.advance(LEASE + SECOND)
    assert await _rescue(bench, silent) == []


@law
async def a_rescue_takes_no_more_than_its_limit(bench: Bench) -> None:
    """A rescue respects its limit; the next one continues."""
    lost = await bench.worker()
    jobs = {(await bench.start(lost)).id for _ in range(5)}
    rescuer = await bench.seasoned()
    assert await _rescue(bench, rescuer, limit=0) == []
    first, rest = await _rescue(bench, rescuer, limit=3), await _rescue(bench, rescuer)
    assert (len(first), len(rest)) == (3, 2)
    assert {*ids(first), *ids(rest)} == jobs


@law
async def a_job_whose_rescuer_dies_is_rescued_again(bench: Bench) -> None:
    """A rescuer is a holder like others, so no job is stranded with it."""
    lost = await bench.start()
    (first,) = await _rescue(bench, await bench.seasoned())
    (second,) = await _rescue(bench, await bench.seasoned())
    assert second.id == lost.id
    assert second.token != first.token
    assert second.attempt == lost.attempt
    assert not await bench.leave(first)
    assert await bench.leave(second)


@law
async def a_rescued_job_keeps_its_cancel_request(bench: Bench) -> None:
    """A cancel request survives the worker that it was meant for."""
    lost = await bench.start()
    assert await bench.move(Verb.CANCEL, lost.id, reason="moot")
    rescuer = await bench.seasoned()
    (rescued,) = await _rescue(bench, rescuer)
    assert rescued.cancel_requested
    assert await bench.store.cancel_requests(rescuer) == [lost.id], "it is the holder now"
    assert await bench.leave(rescued, State.PENDING, crashes=1)
    assert await bench.state(lost.id) is State.CANCELLED
