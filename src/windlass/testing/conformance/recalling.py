"""Owns the laws of a clock that is set back: jobs keep their order and their delay."""

from __future__ import annotations

from datetime import timedelta

from windlass.core.claims.lanes import Ask, Claim
from windlass.core.jobs.job import Lane
from windlass.core.jobs.states import State
from windlass.core.schedules.clock_step import SPANS
from windlass.testing.conformance.bench import DAY, HOUR, MANY, MINUTE, SECOND, Bench, ids
from windlass.testing.conformance.law import law

_NO_TIME = timedelta(0)
_IN_ORDER = Claim(asks=(Ask(lane=Lane("default", "work"), count=1, ordered=True),))


@law
async def jobs_keep_their_order_when_the_clock_is_set_back(bench: Bench) -> None:
    """Jobs enqueued before the step go first, in their order."""
    oldest = await bench.enqueue()
    await bench.advance(HOUR + MINUTE)
    before = [await bench.enqueue() for _ in range(3)]
    await bench.advance(SECOND)
    before.append(await bench.enqueue())
    await bench.advance(-HOUR)
    since = await bench.enqueue()
    await bench.advance(SECOND)
    assert await bench.store.recall(_NO_TIME, 2 * SECOND) == 4
    assert await bench.store.recall(_NO_TIME, 2 * SECOND) == 0
    worker = await bench.worker()
    assert ids(await bench.claim(worker)) == [oldest, *before, since]


@law
async def jobs_keep_their_order_when_a_step_back_is_noticed_late(bench: Bench) -> None:
    """Some jobs from before the step are ahead of the clock, and others no longer are."""
    oldest = await bench.enqueue()
    await bench.advance(MINUTE)
    before = [await bench.enqueue()]
    await bench.advance(2 * SECOND)
    before.append(await bench.enqueue())
    await bench.advance(-10 * SECOND)
    since = [await bench.enqueue()]
    await bench.advance(8 * SECOND)
    since.append(await bench.enqueue())
    assert await bench.store.recall(_NO_TIME, 9 * SECOND) == 2
    # Other workers notice the step, too, and saw the clock last at other times.
    for ago in (9 * SECOND, 5 * SECOND, 30 * SECOND):
        assert await bench.store.recall(_NO_TIME, ago) == 0
    worker = await bench.worker()
    assert ids(await bench.claim(worker)) == [oldest, *before, *since]


@law
async def an_ordered_lane_waits_until_jobs_ahead_of_the_clock_are_recalled(bench: Bench) -> None:
    """No job overtakes another before the step of the clock is noticed."""
    before = await bench.enqueue()
    await bench.advance(-HOUR)
    since = await bench.enqueue()
    worker = await bench.worker(lease=DAY)
    assert await bench.claim_all(worker, _IN_ORDER) == []
    await bench.store.recall(_NO_TIME, SECOND)
    assert ids(await bench.claim_all(worker, _IN_ORDER)) == [before]
    assert ids(await bench.claim_all(worker, _IN_ORDER)) == [since]


@law
async def an_ordered_lane_needs_no_recall_once_the_clock_has_caught_up(bench: Bench) -> None:
    """An unnoticed step blocks a lane no longer than its own length."""
    before = await bench.enqueue()
    await bench.advance(-MINUTE)
    worker = await bench.worker(lease=DAY)
    assert await bench.claim_all(worker, _IN_ORDER) == []
    await bench.advance(MINUTE)
    assert ids(await bench.claim_all(worker, _IN_ORDER)) == [before]


@law
async def a_retry_keeps_its_delay_when_the_clock_is_set_back(bench: Bench) -> None:
    """A retry or snooze does not wait for the length of the step in addition."""
    for reason in sorted(SPANS):
        job = await bench.start()
        assert await bench.leave(job, State.SCHEDULED, due=MINUTE, reason=reason)
        due_at = (await bench.job(job.id)).due_at
        await bench.advance(-HOUR)
        assert await bench.store.recall(HOUR, SECOND) == 1
        assert (await bench.job(job.id)).due_at == due_at - HOUR
        assert await bench.store.recall(_NO_TIME, SECOND) == 0
        await bench.advance(MINUTE)
        assert await bench.store.promote(MANY) == 1
        assert await bench.leave(await bench.start_again(job.id))


@law
async def a_given_time_stays_when_the_clock_is_set_back(bench: Bench) -> None:
    """Only retries and snoozes come sooner, and only those from before the step."""
    jobs = [await bench.enqueue(due=bench.now() + MINUTE), await bench.enqueue(due=MINUTE)]
    for reason in ("asleep: night", "snoozed, until a given time"):
        started = await bench.start()
        assert await bench.leave(started, State.SCHEDULED, due=2 * MINUTE, reason=reason)
        jobs.append(started.id)
    await bench.advance(-HOUR)
    retried = await bench.start(await bench.worker(lease=DAY))
    assert await bench.leave(retried, State.SCHEDULED, due=MINUTE, reason="failed")
    jobs.append(retried.id)
    before = [(await bench.job(job)).due_at for job in jobs]
    assert await bench.store.recall(HOUR, SECOND) == 0
    assert [(await bench.job(job)).due_at for job in jobs] == before
