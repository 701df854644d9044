"""Owns the laws of enqueueing: the state of a new job, and when it is due."""

from __future__ import annotations

import asyncio
from datetime import timedelta, timezone
from functools import partial
from typing import Any

from msgspec.structs import replace

from windlass.core.changes import Changes
from windlass.core.jobs.ids import job_id
from windlass.core.jobs.job import NewJob, UniqueKey
from windlass.core.jobs.queries import JobFilter
from windlass.core.jobs.states import State
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
async def a_job_keeps_all_values_of_its_producer(bench: Bench) -> None:
    """All text and numbers of a producer come back unchanged."""
    odd = "it's \"%_\\ ünï 🙂 -- ; DROP TABLE jobs"
    new = bench.new(
        kind=f"kind {odd}",
        queue=f"queue {odd}",
        key=f"key {odd}",
        payload='{"text": "ünï 🙂"}'.encode(),
        priority=-7,
        max_retries=0,
        timeout=timedelta(milliseconds=1_500),
        headers={"trace": f"{odd}\n\t", "": ""},
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
    assert not any(answer.is_duplicate for answer in answers)
    assert await bench.store.enqueue([]) == []


@law
async def an_enqueue_that_is_repeated_adds_nothing(bench: Bench) -> None:
    """The same id twice, in one batch or in two, is one job."""
    new = bench.new()
    for batch in ([new, new], [new], [bench.new(), new]):
        answers = await bench.store.enqueue(batch)
        assert answers[-1].id == new.id
    assert len((await bench.store.find(JobFilter(), limit=MANY)).jobs) == 2


def _as_decided(changes: Changes[None], _records: object, _now: object) -> Changes[None]:
    return changes


@law
async def an_id_that_is_repeated_hides_no_job_behind_it(bench: Bench) -> None:
    """The jobs behind a repeated id are added, and those that exist already stay as they are."""
    for more in (1, 60):
        running = await bench.start()
        known, new = bench.new(), bench.new()
        late = [bench.new(due=HOUR) for _ in range(more)]
        await bench.store.enqueue([known])
        again = bench.new(id=running.id)
        await bench.store.enqueue([known, known, new, new, again, *late])
        assert await bench.job(running.id) == running
        assert await bench.state(new.id) is State.PENDING
        assert [await bench.state(job.id) for job in late] == [State.SCHEDULED] * more
        added = bench.new()
        changes = Changes(answer=None, enqueue=[new, new, again, added])
        await bench.store.apply([], partial(_as_decided, changes))
        assert await bench.job(running.id) == running
        assert await bench.state(added.id) is State.PENDING


@law
async def an_enqueue_that_is_repeated_leaves_a_finished_job_alone(bench: Bench) -> None:
    """An enqueue with an unknown result can be repeated even after the job ran."""
    new = bench.new()
    await bench.store.enqueue([new])
    assert await bench.leave(await bench.start_again(new.id), result=b"1")
    before = await bench.job(new.id)
    await bench.store.enqueue([new])
    assert await bench.job(new.id) == before


@law
async def a_first_request_that_comes_late_adds_nothing(bench: Bench) -> None:
    """A request that was overtaken by its repetition gives a job that ended no second life."""
    for state in (State.COMPLETED, State.CANCELLED, State.DEAD):
        for fields in ({}, {"unique": UniqueKey(key="k")}, {"due": SECOND}):
            new = await _overtaken(bench, state, **fields)
            before = await bench.job(new.id)
            (answer,) = await bench.store.enqueue([new])
            assert answer.id == new.id
            assert await bench.job(new.id) == before
        limit = timedelta(seconds=PROMPT)
        new = await _overtaken(bench, state)
        await asyncio.to_thread(bench.store.enqueue_blocking, [new], limit)
        assert await bench.state(new.id) is state
    assert (await bench.store.sweep()).heads == ()
    assert not (await bench.add(unique=UniqueKey(key="k"))).is_duplicate, "nobody holds the key"


@law
async def a_batch_that_comes_late_adds_only_what_is_new(bench: Bench) -> None:
    """Of a large batch, too, a job that ended meanwhile stays as it is; the others are added."""
    for waiting_for in (None, "news"):
        ended = [await _overtaken(bench, State.COMPLETED) for _ in range(2)]
        before = [await bench.job(job.id) for job in ended]
        late = [replace(job, waiting_for=waiting_for) for job in ended]
        others = [bench.new(waiting_for=waiting_for) for _ in range(50)]
        batch = [late[0], *others, late[1]]
        answers = await bench.store.enqueue(batch)
        assert [answer.id for answer in answers] == [job.id for job in batch]
        assert [await bench.job(job.id) for job in ended] == before
        for job in others:
            expected = State.PENDING if waiting_for is None else State.SCHEDULED
            assert await bench.state(job.id) is expected


@law
async def a_batch_that_is_repeated_leaves_finished_jobs_alone(bench: Bench) -> None:
    """A large batch with an unknown result can be repeated after some of its jobs ran."""
    kind = f"kind-{bench.number()}"
    batch = [bench.new(kind=kind) for _ in range(50)]
    await bench.store.enqueue(batch)
    assert await bench.leave(await bench.start_again(batch[0].id), result=b"1")
    before = [await bench.job(job.id) for job in batch]
    await bench.store.enqueue(batch)
    assert [await bench.job(job.id) for job in batch] == before


@law
async def an_id_is_known_whatever_its_producers_clock_says(bench: Bench) -> None:
    """A job that ended is found again though the time in its id is far from the store's."""
    for days in (-400, -3, 0, 2, 3, 4, 400):
        new = await _overtaken(bench, State.COMPLETED, made=days * DAY)
        before = await bench.job(new.id)
        await bench.advance(3 * DAY)
        for repeated in (replace(new, origin=None), new):
            await bench.store.enqueue([repeated])
            assert await bench.job(new.id) == before, f"{days} days ahead"
    assert (await bench.store.sweep()).heads == ()


async def _overtaken(
    bench: Bench, state: State, made: timedelta = timedelta(0), **fields: Any
) -> NewJob:
    """Make a job whose second request arrives first, and let it end: the first comes late."""
    identity = job_id(int((bench.now() + made).timestamp() * 1_000), bench.number())
    new = bench.new(id=identity, kind=f"kind-{bench.number()}", **fields)
    await bench.store.enqueue([replace(new, origin=None)])
    await bench.advance(SECOND)
    assert await bench.leave(await bench.start_again(new.id), state)
    return new


@law
async def a_batch_is_seen_whole_or_not_at_all(bench: Bench) -> None:
    """A query during an enqueue never sees a part of the batch."""
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
    """A due time that is over, and a delay of zero, make a job pending now."""
    for due in (bench.now() - DAY, bench.now(), timedelta(0)):
        job = await bench.job(await bench.enqueue(due=due))
        assert job.state is State.PENDING, due
        assert job.due_at == bench.now(), due


@law
async def a_due_time_in_the_past_does_not_jump_the_queue(bench: Bench) -> None:
    """A job whose due time is in the past waits behind those that were there before."""
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
    assert ids(claimed) == [relative.id, absolute.id], (
        "the worker that claims it settles it as expired"
    )
