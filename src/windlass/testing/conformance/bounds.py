"""Owns the laws of bounded stores: producers that wait, and jobs that are never refused."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from windlass.core.changes import Changes
from windlass.core.errors import QueueFull
from windlass.core.jobs.job import Enqueued, NewJob
from windlass.core.jobs.moves import Verb
from windlass.core.jobs.queries import JobFilter
from windlass.core.jobs.states import WAITING, State
from windlass.testing.conformance.bench import HOUR, PROMPT, Bench, raised
from windlass.testing.conformance.law import law

_SHORT_TIMEOUT = timedelta(milliseconds=50)


async def _fill(bench: Bench, leaving: int = 0) -> None:
    await bench.store.enqueue([bench.new() for _ in range(bench.size - leaving)])


async def _waiting(bench: Bench) -> int:
    return sum(count.count for count in await bench.store.counts() if count.state in WAITING)


async def _producer(bench: Bench, *jobs: NewJob) -> asyncio.Task[list[Enqueued]]:
    """Start an enqueue, and check that it waits."""
    task = asyncio.create_task(bench.store.enqueue(jobs))
    done, _ = await asyncio.wait({task}, timeout=_SHORT_TIMEOUT.total_seconds())
    assert not done, "an enqueue into a full store did not wait"
    return task


async def _admitted(task: asyncio.Task[list[Enqueued]]) -> list[Enqueued]:
    await asyncio.wait({task}, timeout=PROMPT)
    if not task.done():
        task.cancel()
        raise AssertionError("the store had capacity, and the producer still waited")
    return task.result()


@law(needs="bounded")
async def a_producer_waits_until_there_is_room(bench: Bench) -> None:
    """An enqueue into a full store waits, and adds nothing before a job leaves."""
    await _fill(bench)
    new = bench.new()
    task = await _producer(bench, new)
    assert await bench.store.get(new.id) is None
    (claimed,) = await bench.claim(await bench.worker(), most=1)
    assert await bench.leave(claimed)
    assert [answer.id for answer in await _admitted(task)] == [new.id]
    assert await bench.state(new.id) is State.PENDING


@law(needs="bounded")
async def a_batch_waits_until_there_is_room_for_all_of_it(bench: Bench) -> None:
    """A batch that fits only in part adds none of its jobs."""
    await _fill(bench, leaving=1)
    batch = [bench.new(), bench.new()]
    task = await _producer(bench, *batch)
    assert [await bench.store.get(job.id) for job in batch] == [None, None]
    await bench.claim(await bench.worker(), most=1)
    await _admitted(task)
    assert await _waiting(bench) == bench.size


@law(needs="bounded")
async def scheduled_jobs_take_room(bench: Bench) -> None:
    """Scheduled jobs count as well as pending ones; a cancelled one does not."""
    await _fill(bench, leaving=1)
    later = await bench.enqueue(due=HOUR)
    task = await _producer(bench, bench.new())
    assert await bench.move(Verb.CANCEL, later)
    await _admitted(task)


@law(needs="bounded")
async def more_than_a_store_can_hold_is_refused_at_once(bench: Bench) -> None:
    """A batch that will never fit is an error, and adds nothing."""
    batch = [bench.new() for _ in range(bench.size + 1)]
    full = await raised(QueueFull, bench.store.enqueue(batch))
    assert full.size == bench.size
    limit = timedelta(seconds=PROMPT)
    await raised(QueueFull, asyncio.to_thread(bench.store.enqueue_blocking, batch, limit))
    assert (await bench.store.find(JobFilter(), limit=1)).jobs == ()


@law(needs="bounded")
async def a_blocking_producer_gives_up_after_its_time(bench: Bench) -> None:
    """A store that stays full raises QueueFull, and the jobs are not added later."""
    await _fill(bench)
    new = bench.new()
    await raised(QueueFull, asyncio.to_thread(bench.store.enqueue_blocking, [new], _SHORT_TIMEOUT))
    await bench.claim(await bench.worker(), most=5)
    assert await bench.store.get(new.id) is None


@law(needs="bounded")
async def a_producer_on_the_event_loop_gives_up_after_its_time(bench: Bench) -> None:
    """An enqueue with a timeout raises QueueFull, and its jobs are not added later."""
    await _fill(bench)
    new = bench.new()
    await raised(QueueFull, asyncio.wait_for(bench.store.enqueue([new], _SHORT_TIMEOUT), PROMPT))
    await bench.claim(await bench.worker(), most=5)
    assert await bench.store.get(new.id) is None


@law(needs="bounded")
async def a_blocking_producer_gets_in_when_there_is_room(bench: Bench) -> None:
    """A producer in a thread waits as one on the event loop does."""
    await _fill(bench)
    new = bench.new()
    blocking = asyncio.to_thread(bench.store.enqueue_blocking, [new], timedelta(seconds=PROMPT))
    task = asyncio.create_task(blocking)
    await asyncio.wait({task}, timeout=_SHORT_TIMEOUT.total_seconds())
    assert not task.done()
    await bench.claim(await bench.worker(), most=1)
    assert [answer.id for answer in await _admitted(task)] == [new.id]


@law(needs="bounded")
async def producers_get_in_first_come_first_served(bench: Bench) -> None:
    """The producer that has waited longest goes first."""
    await _fill(bench)
    new = [bench.new() for _ in range(3)]
    tasks = [await _producer(bench, job) for job in new]
    worker = await bench.worker()
    for task, job in zip(tasks, new, strict=True):
        await bench.claim(worker, most=1)
        await _admitted(task)
        assert await bench.state(job.id) is State.PENDING
        assert await _waiting(bench) == bench.size


@law(needs="bounded")
async def a_producer_that_is_cancelled_adds_nothing(bench: Bench) -> None:
    """An enqueue that its caller gave up is not carried out later."""
    await _fill(bench)
    new = bench.new()
    task = await _producer(bench, new)
    task.cancel()
    await asyncio.wait({task}, timeout=PROMPT)
    await bench.claim(await bench.worker(), most=5)
    assert await bench.store.get(new.id) is None


@law(needs="bounded")
async def a_producer_that_gave_up_does_not_block_others(bench: Bench) -> None:
    """A producer behind a batch that does not fit is served when that batch is gone."""
    await _fill(bench, leaving=1)
    large = await _producer(bench, bench.new(), bench.new())
    small = asyncio.create_task(bench.store.enqueue([bench.new()]))
    await asyncio.wait({small}, timeout=_SHORT_TIMEOUT.total_seconds())
    large.cancel()
    await asyncio.wait({large}, timeout=PROMPT)
    await _admitted(small)


@law(needs="bounded")
async def an_accepted_job_is_never_refused(bench: Bench) -> None:
    """Releases, retries, redrives and unparked jobs get back into a full store."""
    worker = await bench.worker()
    released, retried = await bench.start(worker), await bench.start(worker)
    dead = await bench.job_in(State.DEAD)
    await _fill(bench)
    assert await bench.leave(released, State.PENDING)
    assert await bench.leave(retried, State.SCHEDULED, due=HOUR)
    assert await bench.move(Verb.REDRIVE, dead.id)
    assert await _waiting(bench) == bench.size + 3


@law(needs="bounded")
async def a_full_store_does_not_block_a_change(bench: Bench) -> None:
    """Jobs of a worker's own change are added, or a full store could never be emptied."""
    await _fill(bench)
    new = bench.new()
    changes = Changes(answer=None, enqueue=[new])
    async with asyncio.timeout(PROMPT):
        await bench.store.apply([], lambda _records, _now: changes)
    assert await bench.state(new.id) is State.PENDING
