"""Owns the laws of unique keys: who holds one, and what frees it."""

from __future__ import annotations

import asyncio

from windlass.core.changes import Verb
from windlass.core.job import JobFilter, Retention, Unique
from windlass.core.states import FINISHED, WAITING, State
from windlass.testing.conformance.bench import DAY, HOUR, MANY, MINUTE, SECOND, Bench
from windlass.testing.conformance.law import law

SETTLED = Unique(key="welcome:42")
CLAIMED = Unique(key="welcome:42", until="claimed")


@law
async def a_unique_key_has_one_holder(bench: Bench) -> None:
    """While a key is held no other job gets in with it, and the answer names the holder."""
    holder = await bench.enqueue(unique=SETTLED)
    answer = await bench.add(unique=SETTLED)
    assert answer.id == holder
    assert answer.existing
    assert (await bench.job(holder)).unique_key == SETTLED.key
    assert len((await bench.store.find(JobFilter(), limit=MANY)).jobs) == 1


@law
async def unique_keys_are_told_apart_exactly(bench: Bench) -> None:
    """Keys that differ in case or in a blank are different, and span kinds and queues."""
    keys = ("a", "A", "a ", "", "%", "ä")
    jobs = [await bench.enqueue(unique=Unique(key=key)) for key in keys]
    for key, job in zip(keys, jobs, strict=True):
        answer = await bench.add(kind="other", queue="other", unique=Unique(key=key))
        assert (answer.id, answer.existing) == (job, True), f"key {key!r}"


@law
async def duplicates_inside_a_batch_are_found(bench: Bench) -> None:
    """The first job of a batch with a key holds it; the rest of the batch goes through."""
    first, second, plain = bench.new(unique=SETTLED), bench.new(unique=SETTLED), bench.new()
    answers = await bench.store.enqueue([first, second, plain])
    assert [answer.id for answer in answers] == [first.id, first.id, plain.id]
    assert [answer.existing for answer in answers] == [False, True, False]
    assert await bench.store.get(second.id) is None


@law
async def the_holder_of_a_key_may_be_enqueued_again(bench: Bench) -> None:
    """An enqueue of unknown fate can be repeated although its own job holds the key."""
    new = bench.new(unique=SETTLED)
    await bench.store.enqueue([new])
    (answer,) = await bench.store.enqueue([new])
    assert answer.id == new.id


@law
async def a_race_for_a_key_has_one_winner(bench: Bench) -> None:
    """However many enqueue with a key at once, one gets in and all are told which."""
    answers = await asyncio.gather(*(bench.add(unique=SETTLED) for _ in range(20)))
    assert [answer.existing for answer in answers].count(False) == 1
    assert len({answer.id for answer in answers}) == 1


@law
async def a_key_is_held_until_its_job_is_settled_for_good(bench: Bench) -> None:
    """Running, a retry, a snooze and a release free nothing; every end does."""
    for end in sorted(FINISHED):
        job = await bench.start(unique=SETTLED)
        assert (await bench.add(unique=SETTLED)).existing, "held while it runs"
        for state in sorted(WAITING):
            assert await bench.leave(job, state)
            assert (await bench.add(unique=SETTLED)).existing, f"held while it is {state}"
            job = await bench.start_again(job.id)
        assert await bench.leave(job, end)
        free = await bench.job_in(State.COMPLETED, unique=SETTLED)
        assert free.id != job.id, f"{end} frees the key"


@law
async def cancelling_a_waiting_job_frees_its_key(bench: Bench) -> None:
    """A job that is cancelled before it ran holds no key any more."""
    for unique in (SETTLED, CLAIMED):
        for state in sorted(WAITING):
            job = await bench.job_in(state, unique=unique)
            assert await bench.move(Verb.CANCEL, job.id)
            assert not (again := await bench.add(unique=unique)).existing, f"{state}, {unique}"
            assert await bench.move(Verb.CANCEL, again.id)


@law
async def a_running_job_that_is_to_be_cancelled_frees_its_key_when_it_ends(bench: Bench) -> None:
    """A retry that ends as cancelled frees the key; the request alone does not."""
    job = await bench.start(unique=SETTLED)
    assert await bench.move(Verb.CANCEL, job.id)
    assert (await bench.add(unique=SETTLED)).existing
    assert await bench.leave(job, State.SCHEDULED, due=MINUTE)
    assert not (await bench.add(unique=SETTLED)).existing


@law
async def a_key_until_claimed_is_free_once_its_job_starts(bench: Bench) -> None:
    """The next job may wait while this one runs; a retry of this one does not take the key back."""
    job = await bench.start(unique=CLAIMED)
    second = await bench.enqueue(unique=CLAIMED)
    assert await bench.leave(job, State.PENDING)
    assert await bench.leave(await bench.start_again(job.id))
    answer = await bench.add(unique=CLAIMED)
    assert (answer.id, answer.existing) == (second, True), "the second job still holds the key"


@law
async def a_key_for_a_time_is_held_for_that_time(bench: Bench) -> None:
    """Neither the end of the job nor its claim frees such a key; the store's clock does."""
    unique = Unique(key="hourly", until=HOUR)
    job = await bench.start(unique=unique)
    assert await bench.leave(job)
    await bench.advance(HOUR - SECOND)
    answer = await bench.add(unique=unique)
    assert (answer.id, answer.existing) == (job.id, True)
    await bench.advance(SECOND)
    assert not (await bench.add(unique=unique)).existing


@law
async def a_key_for_a_time_is_free_after_it_though_its_job_waits(bench: Bench) -> None:
    """When the time is over the key is free, and the first job's end does not free the second's."""
    unique = Unique(key="hourly", until=HOUR)
    first = await bench.enqueue(unique=unique)
    await bench.advance(HOUR)
    second = await bench.enqueue(unique=unique)
    assert await bench.leave(await bench.start_again(first))
    answer = await bench.add(unique=unique)
    assert (answer.id, answer.existing) == (second, True)


@law
async def a_redriven_job_does_not_take_its_key_back(bench: Bench) -> None:
    """A job that got the key after the first one died keeps it, whatever becomes of the first."""
    dead = await bench.job_in(State.DEAD, unique=SETTLED)
    heir = await bench.enqueue(unique=SETTLED)
    assert await bench.move(Verb.REDRIVE, dead.id)
    assert await bench.leave(await bench.start_again(dead.id))
    answer = await bench.add(unique=SETTLED)
    assert (answer.id, answer.existing) == (heir, True)


@law
async def pruning_keeps_the_keys_that_are_held(bench: Bench) -> None:
    """A prune frees no key before its time, and changes nothing about those that are over."""
    span = Unique(key="daily", until=DAY)
    daily, settled = await bench.enqueue(unique=span), await bench.enqueue(unique=SETTLED)
    await bench.advance(HOUR)
    await bench.store.prune(Retention(), MANY)
    assert (await bench.add(unique=span)).id == daily
    assert (await bench.add(unique=SETTLED)).id == settled
    await bench.advance(DAY)
    await bench.store.prune(Retention(), MANY)
    assert not (await bench.add(unique=span)).existing
    assert (await bench.add(unique=SETTLED)).id == settled
