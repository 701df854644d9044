"""Owns the laws of settling: the fence, and a job's fields after it has left running."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from windlass.core.failures.error_classes import ErrorClass
from windlass.core.jobs.job import HISTORY_KEPT, ErrorInfo, Progress
from windlass.core.jobs.moves import Verb
from windlass.core.jobs.queries import JobFilter
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import FINISHED, LEGAL, WAITING, State
from windlass.testing.conformance.bench import (
    DAY,
    HOUR,
    LEASE,
    MANY,
    MINUTE,
    SECOND,
    Bench,
    attempt_of,
    ids,
    leaving,
)
from windlass.testing.conformance.law import law

ERROR = ErrorInfo(
    type="ValueError",
    message='it\'s "broken" ünï',
    traceback="line 1\nline 2",
    error_class=ErrorClass.RESOURCE,
)


# -- the fence ---------------------------------------------------------------------------------


@law
async def a_wrong_token_settles_nothing(bench: Bench) -> None:
    """A settle whose token never was the job's changes nothing and returns False."""
    job = await bench.start()
    for state in sorted(LEGAL[State.RUNNING]):
        assert not await bench.leave(job, state, token=bench.number(), failures=1, reason="no")
    assert await bench.job(job.id) == job


@law
async def a_stale_token_settles_nothing(bench: Bench) -> None:
    """The token of an earlier claim does not settle a later one."""
    first = await bench.start()
    assert await bench.leave(first, State.PENDING)
    second = await bench.start_again(first.id)
    for state in sorted(LEGAL[State.RUNNING]):
        assert not await bench.leave(first, state)
    assert await bench.job(first.id) == second
    assert await bench.leave(second)


@law
async def a_settle_counts_once(bench: Bench) -> None:
    """A settle that is repeated, or followed by another under the same token, changes nothing."""
    for state in sorted(LEGAL[State.RUNNING]):
        job = await bench.start()
        assert await bench.leave(job, state, failures=1, attempt=attempt_of(job))
        settled = await bench.job(job.id)
        for again in sorted(LEGAL[State.RUNNING]):
            assert not await bench.leave(job, again, failures=1, attempt=attempt_of(job)), again
        assert await bench.job(job.id) == settled


@law
async def a_settle_counts_once_inside_a_batch(bench: Bench) -> None:
    """The same transition twice in one batch moves the job once."""
    for state in sorted(LEGAL[State.RUNNING]):
        job, other = await bench.start(), await bench.start()
        twice = leaving(job, state, failures=1, attempt=attempt_of(job))
        assert await bench.store.settle([twice, leaving(other), twice]) == [True, True, False]
        settled = await bench.job(job.id)
        assert (settled.state, settled.failures, len(settled.history)) == (state, 1, 1)


@law
async def the_first_settle_of_a_batch_counts(bench: Bench) -> None:
    """When two transitions of a batch disagree about a job, their order decides."""
    for first, second in ((State.DEAD, State.COMPLETED), (State.COMPLETED, State.DEAD)):
        job, other, another = await bench.start(), await bench.start(), await bench.start()
        batch = [leaving(other), leaving(job, first), leaving(job, second), leaving(another)]
        assert await bench.store.settle(batch) == [True, True, False, True], (first, second)
        assert await bench.state(job.id) is first


@law
async def a_batch_of_successes_keeps_each_result(bench: Bench) -> None:
    """Many results at once are kept as each alone is, and a fenced one among them is not."""
    results = ('"it\'s ünï 🙂\\n"'.encode(), b'""', None, b'{"a": [1, null]}', b"1e400", b"null")
    jobs = [await bench.start() for _ in results]
    fenced = leaving(await bench.start(), token=bench.number(), result=b"1")
    batch = [leaving(job, result=result) for job, result in zip(jobs, results, strict=True)]
    assert await bench.store.settle([*batch, fenced]) == [True] * len(batch) + [False]
    assert tuple([(await bench.job(job.id)).result for job in jobs]) == results
    assert await bench.state(fenced.id) is State.RUNNING
    jobs = [await bench.start() for _ in results]
    batch = [leaving(job, result=result) for job, result in zip(jobs, results, strict=True)]
    assert await bench.store.settle(batch) == [True] * len(batch)
    assert tuple([(await bench.job(job.id)).result for job in jobs]) == results


@law
async def a_fenced_settle_does_not_block_the_others(bench: Bench) -> None:
    """In a batch each transition stands for itself, and the answers keep its order."""
    jobs = [await bench.start() for _ in range(4)]
    unknown = leaving(jobs[0], id=bench.new().id)
    batch = [
        leaving(jobs[0]),
        leaving(jobs[1], token=bench.number()),
        unknown,
        leaving(jobs[2], State.DEAD),
        leaving(jobs[3], State.PENDING),
    ]
    assert await bench.store.settle(batch) == [True, False, False, True, True]
    states = [await bench.state(job.id) for job in jobs]
    assert states == [State.COMPLETED, State.RUNNING, State.DEAD, State.PENDING]
    assert await bench.store.settle([]) == []


@law
async def only_running_jobs_are_settled(bench: Bench) -> None:
    """No token fits a job that does not run."""
    for state in sorted(set(State) - {State.RUNNING}):
        job = await bench.job_in(state)
        assert job.token is None, f"a {state} job has no token"
        for token in (0, 1, -1):
            transition = Transition(id=job.id, token=token, state=State.COMPLETED)
            assert await bench.store.settle([transition]) == [False], state
        assert await bench.job(job.id) == job


@law
async def a_late_settle_counts_until_the_job_is_rescued(bench: Bench) -> None:
    """The token is the fence, not the lease: work that was done is not discarded."""
    worker = await bench.worker()
    job = await bench.start(worker)
    await bench.advance(LEASE + HOUR)
    await bench.store.retire(worker)
    assert await bench.leave(job, result=b"1")
    assert await bench.state(job.id) is State.COMPLETED


@law
async def of_many_settles_at_once_one_counts(bench: Bench) -> None:
    """Acknowledgements that race under one token move the job once."""
    job = await bench.start()
    moved = await asyncio.gather(*(bench.leave(job, State.DEAD, failures=1) for _ in range(10)))
    assert moved.count(True) == 1
    assert (await bench.job(job.id)).failures == 1


@law
async def progress_is_recorded_under_the_fence(bench: Bench) -> None:
    """The holder's progress is shown; a stale one's, and any after the end, is refused."""
    job = await bench.start()
    assert job.token is not None
    half = Progress(fraction=0.5, message="half ünï")
    assert await bench.store.progress(job.id, job.token, half)
    assert (await bench.job(job.id)).progress == half
    full = Progress(fraction=1.0)
    assert not await bench.store.progress(job.id, bench.number(), full)
    assert (await bench.job(job.id)).progress == half
    assert await bench.leave(job)
    assert not await bench.store.progress(job.id, job.token, full)
    assert not await bench.store.progress(bench.new().id, job.token, full)


# -- a job after its settle ---------------------------------------------------------------------


@law
async def a_running_job_moves_wherever_the_table_says(bench: Bench) -> None:
    """Every legal state is reached from running, and keeps nothing of the claim's fence."""
    for state in sorted(LEGAL[State.RUNNING]):
        job = await bench.start()
        assert await bench.leave(job, state), state
        settled = await bench.job(job.id)
        assert settled.state is state
        assert settled.token is None, state
        assert settled.attempt == 1
        if state in WAITING:
            assert (settled.worker, settled.started_at, settled.finished_at) == (None, None, None)


@law
async def a_running_job_does_not_move_to_running(bench: Bench) -> None:
    """The one illegal move out of running is refused: the job would run on without its fence."""
    job = await bench.start()
    assert not await bench.leave(job, State.RUNNING)
    assert await bench.job(job.id) == job
    assert await bench.leave(job)


@law
async def a_finished_job_keeps_its_worker_and_its_times(bench: Bench) -> None:
    """The end is by the store's clock; holder and start are kept."""
    for state in sorted(FINISHED):
        job = await bench.start()
        await bench.advance(SECOND)
        assert await bench.leave(job, state, reason="why ünï")
        ended = await bench.job(job.id)
        assert ended.finished_at == bench.now()
        assert (ended.worker, ended.started_at) == (job.worker, job.started_at)
        assert ended.reason == "why ünï"


@law
async def a_result_is_kept(bench: Bench) -> None:
    """A completed job holds its result byte for byte, or none."""
    for result in ('"ünï"'.encode(), b'""', b"null", b"-0.0", None):
        job = await bench.start()
        assert await bench.leave(job, result=result)
        assert (await bench.job(job.id)).result == result


@law
async def an_error_is_kept_until_the_job_completes(bench: Bench) -> None:
    """The last error outlives retries and releases, and ends with success."""
    job = await bench.start()
    assert await bench.leave(job, State.SCHEDULED, error=ERROR, failures=1, reason="failed")
    assert (await bench.job(job.id)).error == ERROR
    assert await bench.leave(await bench.start_again(job.id), State.PENDING)
    assert (await bench.job(job.id)).error == ERROR
    assert await bench.leave(await bench.start_again(job.id))
    assert (await bench.job(job.id)).error is None


@law
async def a_dead_job_keeps_its_error_and_its_reason(bench: Bench) -> None:
    """A dead job has the facts that a person needs to decide about it."""
    job = await bench.start()
    assert await bench.leave(job, State.DEAD, error=ERROR, failures=1, reason="gave up")
    dead = await bench.job(job.id)
    assert (dead.error, dead.reason, dead.failures) == (ERROR, "gave up", 1)


@law
async def failures_and_crashes_add_up(bench: Bench) -> None:
    """A transition has increments of the counters, not sums."""
    job = await bench.start()
    for state, failures, crashes in (
        (State.SCHEDULED, 1, 0),
        (State.PENDING, 0, 1),
        (State.SCHEDULED, 1, 0),
        (State.DEAD, 0, 1),
    ):
        assert await bench.leave(job, state, failures=failures, crashes=crashes)
        if state is not State.DEAD:
            job = await bench.start_again(job.id)
    settled = await bench.job(job.id)
    assert (settled.failures, settled.crashes, settled.attempt) == (2, 2, 4)


@law
async def a_release_keeps_its_place_in_line(bench: Bench) -> None:
    """A job that is given back is next again, and is not charged."""
    jobs = [await bench.enqueue() for _ in range(3)]
    worker = await bench.worker()
    (first,) = await bench.claim(worker, most=1)
    await bench.advance(SECOND)
    assert await bench.leave(first, State.PENDING, reason="released")
    released = await bench.job(first.id)
    assert (released.failures, released.crashes, released.due_at) == (0, 0, first.due_at)
    assert ids(await bench.claim(worker)) == jobs


@law
async def a_retry_waits_by_the_stores_clock(bench: Bench) -> None:
    """A delay counts from the settle; an instant in the past is now."""
    job = await bench.start()
    await bench.advance(SECOND)
    assert await bench.leave(job, State.SCHEDULED, due=MINUTE)
    assert (await bench.job(job.id)).due_at == bench.now() + MINUTE
    await bench.advance(MINUTE)
    job = await bench.start_again(job.id)
    assert await bench.leave(job, State.SCHEDULED, due=bench.now() + HOUR)
    assert (await bench.job(job.id)).due_at == bench.now() + HOUR
    await bench.advance(HOUR)
    job = await bench.start_again(job.id)
    assert await bench.leave(job, State.SCHEDULED, due=bench.now() - DAY)
    assert (await bench.job(job.id)).due_at == bench.now()


@law
async def a_retry_waits_behind_those_that_were_due_before_it(bench: Bench) -> None:
    """A retry loses its place in the lane."""
    first = await bench.enqueue()
    worker = await bench.worker(lease=HOUR)
    (job,) = await bench.claim(worker)
    second = await bench.enqueue()
    assert await bench.leave(job, State.SCHEDULED, due=SECOND)
    await bench.advance(MINUTE)
    third = await bench.enqueue()
    await bench.store.promote(MANY)
    assert ids(await bench.claim(worker)) == [second, first, third]


@law
async def history_grows_by_each_attempt_of_a_settle(bench: Bench) -> None:
    """Attempts are appended as they were given; a settle without one adds none."""
    job = await bench.start()
    first = attempt_of(job)
    assert await bench.leave(job, State.PENDING, attempt=first)
    job = await bench.start_again(job.id)
    assert await bench.leave(job, State.PENDING)
    job = await bench.start_again(job.id)
    third = attempt_of(job, "timed out")
    assert await bench.leave(job, State.DEAD, attempt=third)
    assert (await bench.job(job.id)).history == (first, third)


@law
async def history_is_bounded(bench: Bench) -> None:
    """A job that is snoozed forever keeps only its latest attempts."""
    job = await bench.start(worker := await bench.worker())
    for _ in range(HISTORY_KEPT + 3):
        assert await bench.leave(job, State.PENDING, attempt=attempt_of(job, "snoozed"))
        (job,) = await bench.claim(worker, job.lane)
    numbers = [attempt.number for attempt in job.history]
    assert numbers == list(range(4, HISTORY_KEPT + 4))


# -- cancel while running ----------------------------------------------------------------------


@law
async def a_running_job_that_is_cancelled_goes_on_until_it_is_settled(bench: Bench) -> None:
    """The request is shown on the job and listed for its holder alone."""
    holder, other = await bench.worker(), await bench.worker()
    job, quiet = await bench.start(holder), await bench.start(holder)
    moved = await bench.move(Verb.CANCEL, job.id, reason="moot")
    assert moved is not None
    assert (moved.state, moved.cancel_requested) == (State.RUNNING, True)
    assert moved.token == job.token, "the holder's fence is untouched"
    assert await bench.store.cancel_requests(holder) == [job.id]
    assert await bench.store.cancel_requests(other) == []
    assert not (await bench.job(quiet.id)).cancel_requested
    assert await bench.leave(job, State.CANCELLED, reason="moot")
    assert await bench.store.cancel_requests(holder) == []


@law
async def a_job_with_a_cancel_request_never_waits_again(bench: Bench) -> None:
    """A retry, snooze or release of such a job ends it as cancelled, for the canceller's reason."""
    for state in sorted(WAITING):
        job = await bench.start()
        assert await bench.move(Verb.CANCEL, job.id, reason="moot")
        due = timedelta(0) if state is State.SCHEDULED else None
        attempt = attempt_of(job)
        assert await bench.leave(job, state, due=due, failures=1, reason="no", attempt=attempt)
        ended = await bench.job(job.id)
        assert (ended.state, ended.reason) == (State.CANCELLED, "moot"), state
        assert ended.finished_at == bench.now()
        assert (ended.failures, ended.history) == (1, (attempt,))
        await bench.advance(DAY)
        assert await bench.store.promote(MANY) == 0
    waiting = await bench.store.find(JobFilter(states=tuple(sorted(WAITING))), limit=MANY)
    assert waiting.jobs == ()


@law
async def a_job_with_a_cancel_request_may_still_end_otherwise(bench: Bench) -> None:
    """A job that completed or died before it noticed the request keeps that state."""
    for state in (State.COMPLETED, State.DEAD):
        job = await bench.start()
        assert await bench.move(Verb.CANCEL, job.id, reason="moot")
        assert await bench.leave(job, state)
        assert await bench.state(job.id) is state
