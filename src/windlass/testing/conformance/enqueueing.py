"""Owns the laws of enqueueing: what becomes of a new job, and when it is due."""

from __future__ import annotations

import asyncio
from datetime import timedelta, timezone

from windlass.core.job import JobFilter
from windlass.core.states import State
from windlass.testing.conformance.bench import DAY, HOUR, MANY, MINUTE, PROMPT, SECOND, Bench, ids
from windlass.testing.conformance.law import law


@law
async def an_enqueued_job_is_pending_from_now_on(bench: Bench) -> None:
    """A job without a due time is pending at once, and its times are the store's."""
    job = await bench.job(await bench.enqueue())
    assert job.state is State.PENDING
    assert job.created_at == job.due_at == bench.now()
    assert (job.attempt, job.failures, job.crashes) == (0, 0, 0)
    assert (job.worker, job.token, job.started_at, job.finished_at) == (None, None, None, None)
    assert (job.expires_at, job.history, job.cancel_requested) == (None, (), False)


@law
async def a_job_keeps_all_that_its_producer_gave_it(bench: Bench) -> None:
    """Whatever text and numbers a producer chose come back as they were."""
    odd = "it's \"%_\\ ünï 🙂\n\t-- ; DROP TABLE jobs"
    new = bench.new(
        kind=f"kind {odd}",
        queue=f"queue {odd}",
        key=f"key {odd}",
        payload='{"text": "ünï 🙂"}'.encode(),
        priority=-7,
        max_retries=0,
        timeout=timedelta(milliseconds=1_500),
        headers={"trace": odd, "": ""},
    )
    await bench.store.enqueue([new])
    job = await bench.job(new.id)
    for field in ("id", "kind", "queue", "key", "payload", "priority", "max_retries", "headers"):
        assert getattr(job, field) == getattr(new, field), field
    assert job.timeout == new.timeout
    assert job.lane == (new.queue, new.kind, new.priority, new.key)


@law
async def answers_come_in_the_order_of_the_jobs(bench: Bench) -> None:
    """An enqueue answers for each job, in order; an enqueue of nothing answers with nothing."""
    new = [bench.new() for _ in range(20)]
    answers = await bench.store.enqueue(new)
    assert [answer.id for answer in answers] == [job.id for job in new]
    assert not any(answer.existing for answer in answers)
    assert await bench.store.enqueue([]) == []


@law
async def an_enqueue_that_is_repeated_adds_nothing(bench: Bench) -> None:
    """The same id twice, in one batch or in two, is one job."""
    new = bench.new()
    for batch in ([new, new], [new], [bench.new(), new]):
        answers = await bench.store.enqueue(batch)
        assert answers[-1].id == new.id
    assert len((await bench.store.find(JobFilter(), limit=MANY)).jobs) == 2


@law
async def an_enqueue_that_is_repeated_leaves_a_finished_job_alone(bench: Bench) -> None:
    """An enqueue of unknown fate can be repeated even after the job ran."""
    new = bench.new()
    await bench.store.enqueue([new])
    assert await bench.leave(await bench.start_again(new.id), result=b"1")
    before = await bench.job(new.id)
    await bench.store.enqueue([new])
    assert await bench.job(new.id) == before


@law
async def a_batch_is_seen_whole_or_not_at_all(bench: Bench) -> None:
    """Nobody who looks while a batch is enqueued sees a part of it."""
    batch = [bench.new() for _ in range(100)]
    enqueue = asyncio.create_task(bench.store.enqueue(batch))
    seen: set[int] = set()
    while not enqueue.done():
        seen.add(len((await bench.store.find(JobFilter(), limit=MANY)).jobs))
        await asyncio.sleep(0)
    await enqueue
    assert seen <= {0, len(batch)}, f"parts of a batch of {len(batch)} were seen: {seen}"


@law
async def a_producer_without_an_event_loop_enqueues_from_its_thread(bench: Bench) -> None:
    """The blocking enqueue does what the other does."""
    new, limit = bench.new(unique=None), timedelta(seconds=PROMPT)
    for _ in range(2):
        (answer,) = await asyncio.to_thread(bench.store.enqueue_blocking, [new], limit)
        assert answer.id == new.id
    assert await bench.state(new.id) is State.PENDING
    assert ids((await bench.store.find(JobFilter(), limit=MANY)).jobs) == [new.id]


@law
async def many_threads_enqueue_at_once(bench: Bench) -> None:
    """Producers in threads and on the event loop do not lose each other's jobs."""
    limit = timedelta(seconds=PROMPT)
    batches = [[bench.new() for _ in range(5)] for _ in range(16)]
    await asyncio.gather(
        *(bench.store.enqueue(batch) for batch in batches[:8]),
        *(asyncio.to_thread(bench.store.enqueue_blocking, batch, limit) for batch in batches[8:]),
    )
    found = (await bench.store.find(JobFilter(), limit=MANY)).jobs
    assert set(ids(found)) == {job.id for batch in batches for job in batch}


@law
async def a_delay_counts_from_the_stores_time(bench: Bench) -> None:
    """A job with a delay is scheduled, and is pending once promoted after its time has come."""
    job = await bench.enqueue(due=MINUTE)
    assert (await bench.job(job)).due_at == bench.now() + MINUTE
    await bench.advance(MINUTE - SECOND)
    assert await bench.store.promote(MANY) == 0
    assert await bench.state(job) is State.SCHEDULED
    await bench.advance(SECOND)
    assert await bench.store.promote(MANY) == 1
    assert await bench.state(job) is State.PENDING


@law
async def an_instant_is_the_same_in_every_time_zone(bench: Bench) -> None:
    """A due time of another time zone is the instant that it names."""
    due = (bench.now() + HOUR).astimezone(timezone(timedelta(hours=-9, minutes=-30)))
    job = await bench.job(await bench.enqueue(due=due, expires=due + HOUR))
    assert job.state is State.SCHEDULED
    assert job.due_at == due
    assert job.due_at.tzinfo is not None, "all times are aware"
    assert job.expires_at == due + HOUR
    assert (await bench.store.sweep()).next_due == due


@law
async def times_are_kept_to_the_microsecond(bench: Bench) -> None:
    """A store does not round times, or else due times would come early or late."""
    due = bench.now() + DAY + timedelta(microseconds=1)
    assert (await bench.job(await bench.enqueue(due=due))).due_at == due


@law
async def a_time_in_the_past_is_now(bench: Bench) -> None:
    """A due time that is over, and a delay of nothing, make a job pending now."""
    for due in (bench.now() - DAY, bench.now(), timedelta(0)):
        job = await bench.job(await bench.enqueue(due=due))
        assert job.state is State.PENDING, due
        assert job.due_at == bench.now(), due


@law
async def nobody_jumps_the_queue_with_a_time_in_the_past(bench: Bench) -> None:
    """A job that claims to be due since yesterday waits behind those that were there before."""
    first = await bench.enqueue()
    await bench.advance(SECOND)
    pusher = await bench.enqueue(due=bench.now() - DAY)
    assert ids(await bench.claim(await bench.worker())) == [first, pusher]


@law
async def an_expiry_counts_from_the_stores_time(bench: Bench) -> None:
    """An expiry is a span from now or an instant, and moves no job by itself."""
    relative = await bench.job(await bench.enqueue(expires=MINUTE))
    absolute = await bench.job(await bench.enqueue(expires=bench.now() + HOUR))
    assert relative.expires_at == bench.now() + MINUTE
    assert absolute.expires_at == bench.now() + HOUR
    await bench.advance(DAY)
    claimed = await bench.claim(await bench.worker())
    assert ids(claimed) == [relative.id, absolute.id], "whoever claims it settles it as expired"
