"""Owns the laws of waiting: promotion, parked jobs, sweeps, and wake-ups after changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from windlass.core.changes import Changes
from windlass.core.claims.lanes import Head
from windlass.core.jobs.job import Lane
from windlass.core.jobs.moves import Verb
from windlass.core.jobs.states import State
from windlass.testing.conformance.bench import (
    DAY,
    HOUR,
    MANY,
    MINUTE,
    PROMPT,
    SECOND,
    Bench,
    ids,
)
from windlass.testing.conformance.law import law

# -- promotion ---------------------------------------------------------------------------------


@law
async def promotion_takes_the_earliest_first(bench: Bench) -> None:
    """A promotion moves no more than its limit, in the order of due times, and says how many."""
    late = await bench.enqueue(due=3 * MINUTE)
    jobs = [await bench.enqueue(due=span * SECOND) for span in (5, 3, 4, 1, 2)]
    await bench.advance(MINUTE)
    assert await bench.store.promote(0) == 0
    assert await bench.store.promote(2) == 2
    states = [await bench.state(job) for job in jobs]
    assert states == [State.SCHEDULED] * 3 + [State.PENDING] * 2
    assert await bench.store.promote(MANY) == 3
    assert await bench.store.promote(MANY) == 0
    assert await bench.state(late) is State.SCHEDULED


@law
async def a_promotion_changes_only_the_state(bench: Bench) -> None:
    """A promoted job keeps its due time, which is its place in line."""
    job = await bench.job(await bench.enqueue(due=MINUTE))
    await bench.advance(HOUR)
    assert await bench.store.promote(MANY) == 1
    promoted = await bench.job(job.id)
    assert (promoted.state, promoted.due_at) == (State.PENDING, job.due_at)
    assert promoted.created_at == job.created_at


@law
async def a_parked_job_is_never_promoted(bench: Bench) -> None:
    """A parked job does not start because time has passed."""
    job = await bench.enqueue(due=MINUTE)
    moved = await bench.move(Verb.PARK, job, waiting_for="flow:1")
    assert moved is not None
    assert (moved.state, moved.waiting_for) == (State.SCHEDULED, "flow:1")
    await bench.advance(DAY)
    assert await bench.store.promote(MANY) == 0
    assert await bench.claim(await bench.worker()) == []
    assert (await bench.job(job)).waiting_for == "flow:1"


@law
async def a_pending_job_that_is_parked_is_not_claimed(bench: Bench) -> None:
    """Parking takes a job out of its lane, and unparking gives it its old place back."""
    parked = await bench.enqueue()
    await bench.advance(SECOND)
    other = await bench.enqueue()
    assert await bench.move(Verb.PARK, parked, waiting_for="event")
    worker = await bench.worker()
    assert await bench.store.promote(MANY) == 0
    assert ids(await bench.claim(worker, most=1)) == [other]
    last = await bench.enqueue()
    assert await bench.move(Verb.UNPARK, parked, waiting_for="event")
    await bench.store.promote(MANY)
    assert ids(await bench.claim(worker)) == [parked, last]


@law
async def an_unparked_job_still_waits_for_its_time(bench: Bench) -> None:
    """Unparking ends the wait for an event, not the wait for a due time."""
    job = await bench.enqueue(due=HOUR)
    assert await bench.move(Verb.PARK, job, waiting_for="event")
    moved = await bench.move(Verb.UNPARK, job, waiting_for="event")
    assert moved is not None
    assert (moved.state, moved.waiting_for) == (State.SCHEDULED, None)
    assert await bench.store.promote(MANY) == 0
    await bench.advance(HOUR)
    assert await bench.store.promote(MANY) == 1


# -- sweeps ------------------------------------------------------------------------------------


@law
async def a_sweep_shows_the_head_of_every_lane(bench: Bench) -> None:
    """Each lane with pending jobs is shown once, with the due time of its oldest."""
    start = bench.now()
    await bench.enqueue(kind="a")
    await bench.enqueue(kind="b", queue="mail", priority=3, key="tenant")
    await bench.advance(SECOND)
    await bench.enqueue(kind="a")
    await bench.enqueue(kind="c")
    sweep = await bench.store.sweep()
    heads = {
        Head(lane=Lane("default", "a"), position=start),
        Head(lane=Lane("mail", "b", 3, "tenant"), position=start),
        Head(lane=Lane("default", "c"), position=start + SECOND),
    }
    assert len(sweep.heads) == len(heads)
    assert set(sweep.heads) == heads
    assert sweep.now == bench.now()


@law
async def a_sweep_shows_no_lane_without_pending_jobs(bench: Bench) -> None:
    """Claimed, cancelled, scheduled and parked jobs make no head; a released one does again."""
    worker = await bench.worker()
    job = await bench.start(worker)
    await bench.move(Verb.CANCEL, (await bench.job_in(State.PENDING)).id)
    await bench.enqueue(due=HOUR)
    await bench.move(Verb.PARK, (await bench.job_in(State.PENDING)).id, waiting_for="event")
    assert (await bench.store.sweep()).heads == ()
    await bench.advance(SECOND)
    assert await bench.leave(job, State.PENDING)
    (head,) = (await bench.store.sweep()).heads
    assert (head.lane, head.position) == (job.lane, job.due_at)


@law
async def a_sweep_moves_to_the_next_job_of_a_lane(bench: Bench) -> None:
    """When the oldest is claimed, the next one's due time is the lane's position."""
    await bench.enqueue()
    await bench.advance(SECOND)
    await bench.enqueue()
    await bench.claim(await bench.worker(), most=1)
    (head,) = (await bench.store.sweep()).heads
    assert head.position == bench.now()


@law
async def a_sweep_says_when_the_next_job_is_due(bench: Bench) -> None:
    """A sweep has the earliest due time of scheduled jobs; pending and parked ones do not count."""
    await bench.enqueue()
    assert (await bench.store.sweep()).next_due is None
    parked = await bench.enqueue(due=SECOND)
    await bench.move(Verb.PARK, parked, waiting_for="event")
    assert (await bench.store.sweep()).next_due is None
    await bench.enqueue(due=HOUR)
    soon = await bench.enqueue(due=MINUTE)
    assert (await bench.store.sweep()).next_due == bench.now() + MINUTE
    await bench.move(Verb.CANCEL, soon)
    assert (await bench.store.sweep()).next_due == bench.now() + HOUR


@law
async def a_sweep_of_some_queues_leaves_out_the_lanes_of_others(bench: Bench) -> None:
    """It shows every lane of these queues, and when the next job of any queue is due."""
    lanes = {
        Lane("mail", "a"),
        Lane("mail", "b"),
        Lane("mail", "b", 3),
        Lane("mail", "b", 3, "tenant"),
        Lane("reports", "a"),
    }
    others = {Lane(queue, "a") for queue in ("mai", "mail2", "mailé", "report", "zebra")}
    for lane in lanes | others:
        await bench.enqueue(**lane._asdict())
    await bench.enqueue(queue="zebra", due=MINUTE)
    for fresh in (True, False):
        for queues in ({"mail", "reports", "none"}, {"mail"}, {"none"}, set()):
            sweep = await bench.store.sweep(fresh=fresh, queues=frozenset(queues))
            shown = [head.lane for head in sweep.heads]
            assert sorted(shown) == sorted(lane for lane in lanes if lane.queue in queues)
            assert sweep.next_due == bench.now() + MINUTE
        shown = [head.lane for head in (await bench.store.sweep(fresh=fresh)).heads]
        assert sorted(shown) == sorted(lanes | others)


@law
async def a_worker_of_one_queue_finds_its_jobs_beside_many_lanes_of_others(bench: Bench) -> None:
    """A thousand lanes of other queues wait; the lanes that it looks at are those of its own."""
    number = bench.size - 5 if bench.store.capabilities.bounded else 1_500
    await bench.store.enqueue([bench.new(queue=f"other-{n}") for n in range(number)])
    worker, queues = await bench.worker(), frozenset({"served"})
    for _ in range(3):
        sweep = await bench.store.sweep(fresh=True, queues=queues)
        assert [head.lane for head in sweep.heads] == []
        job = await bench.enqueue(queue="served")
        async with asyncio.timeout(PROMPT):
            while not sweep.heads:
                await bench.store.wait(sweep.mark, HOUR, queues=queues)
                sweep = await bench.store.sweep(fresh=False, queues=queues)
        (head,) = sweep.heads
        assert ids(await bench.claim(worker, head.lane)) == [job]
    assert len((await bench.store.sweep()).heads) == number


# -- waking up ---------------------------------------------------------------------------------


async def _enqueue(bench: Bench) -> None:
    await bench.enqueue()


async def _release(bench: Bench) -> None:
    (claimed,) = await bench.claim(await bench.worker(), Lane("default", "ready"))
    assert await bench.leave(claimed, State.PENDING)


async def _promote(bench: Bench) -> None:
    await bench.advance(MINUTE)
    assert await bench.store.promote(MANY) == 1


async def _apply(bench: Bench) -> None:
    changes = Changes(answer=None, enqueue=[bench.new()])
    await bench.store.apply([], lambda _records, _now: changes)


async def _enqueue_from_a_thread(bench: Bench) -> None:
    limit = timedelta(seconds=PROMPT)
    await asyncio.to_thread(bench.store.enqueue_blocking, [bench.new()], limit)


_CHANGES: tuple[Callable[[Bench], Awaitable[None]], ...] = (
    _enqueue,
    _release,
    _promote,
    _apply,
    _enqueue_from_a_thread,
)


def _waiter(bench: Bench, mark: int) -> asyncio.Task[Any]:
    """Wait for much longer than a law may take, so that only a change can end it."""
    return asyncio.create_task(bench.store.wait(mark, HOUR))


@law
async def a_wait_ends_when_something_changes(bench: Bench) -> None:
    """New, released and promoted jobs end a wait promptly."""
    await bench.enqueue(kind="ready")
    await bench.enqueue(kind="later", due=MINUTE)
    for change in _CHANGES:
        waiter = _waiter(bench, (await bench.store.sweep()).mark)
        await asyncio.wait({waiter}, timeout=0.01)
        await change(bench)
        done, _ = await asyncio.wait({waiter}, timeout=PROMPT)
        waiter.cancel()
        assert done, f"the wait slept through {change.__name__}"


@law
async def a_change_between_the_sweep_and_the_wait_is_not_missed(bench: Bench) -> None:
    """A wait for a mark that is old already ends at once."""
    await bench.enqueue(kind="ready")
    await bench.enqueue(kind="later", due=MINUTE)
    for change in _CHANGES:
        mark = (await bench.store.sweep()).mark
        await change(bench)
        waiter = _waiter(bench, mark)
        done, _ = await asyncio.wait({waiter}, timeout=PROMPT)
        waiter.cancel()
        assert done, f"{change.__name__} before the wait was missed"


@law
async def every_waiter_wakes_up(bench: Bench) -> None:
    """One change ends all waits."""
    mark = (await bench.store.sweep()).mark
    waiters = {_waiter(bench, mark) for _ in range(5)}
    await asyncio.wait(waiters, timeout=0.01)
    await bench.enqueue()
    _, asleep = await asyncio.wait(waiters, timeout=PROMPT)
    for waiter in asleep:
        waiter.cancel()
    assert not asleep, f"{len(asleep)} of {len(waiters)} slept on"


@law
async def a_process_that_was_busy_waits_like_any_other(bench: Bench) -> None:
    """A process that reported itself busy works as before."""
    await bench.store.busy()
    waiter = _waiter(bench, (await bench.store.sweep()).mark)
    await asyncio.wait({waiter}, timeout=0.01)
    await bench.store.busy()
    await bench.enqueue()
    done, _ = await asyncio.wait({waiter}, timeout=PROMPT)
    waiter.cancel()
    assert done


@law
async def a_wait_ends_when_its_time_is_up(bench: Bench) -> None:
    """Without any change a wait returns after its timeout."""
    mark = (await bench.store.sweep()).mark
    waiter = asyncio.create_task(bench.store.wait(mark, timedelta(milliseconds=20)))
    done, _ = await asyncio.wait({waiter}, timeout=PROMPT)
    waiter.cancel()
    assert done


@law
async def a_wait_can_be_given_up(bench: Bench) -> None:
    """A cancelled wait leaves nothing behind that later changes would trip over."""
    waiter = _waiter(bench, (await bench.store.sweep()).mark)
    await asyncio.wait({waiter}, timeout=0.01)
    waiter.cancel()
    await asyncio.wait({waiter}, timeout=PROMPT)
    assert waiter.done()
    assert await bench.state(await bench.enqueue()) is State.PENDING
