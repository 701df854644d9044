"""Owns the laws of unique keys: their holders, their release, and duplicates."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from msgspec.structs import replace

from windlass.core.jobs.job import UniqueKey
from windlass.core.jobs.moves import Verb
from windlass.core.jobs.queries import JobFilter, Retention
from windlass.core.jobs.states import FINISHED, WAITING, State
from windlass.testing.conformance.bench import DAY, HOUR, MANY, MINUTE, SECOND, Bench
from windlass.testing.conformance.law import law

SETTLED = UniqueKey(key="welcome:42")
CLAIMED = UniqueKey(key="welcome:42", until="claimed")
REPLACING = UniqueKey(key="welcome:42", until="claimed", on_duplicate="replace")
PUSHING = UniqueKey(key="welcome:42", until="claimed", on_duplicate="push")


@law
async def a_unique_key_has_one_holder(bench: Bench) -> None:
    """While a key is held no other job gets in with it, and the answer names the holder."""
    holder = await bench.enqueue(unique=SETTLED)
    answer = await bench.add(unique=SETTLED)
    assert answer.id == holder
    assert answer.is_duplicate
    assert (await bench.job(holder)).unique_key == SETTLED.key
    assert len((await bench.store.find(JobFilter(), limit=MANY)).jobs) == 1


@law
async def unique_keys_are_compared_exactly(bench: Bench) -> None:
    """Keys that differ in case or in a blank are different, and span kinds and queues."""
    keys = ("a", "A", "a ", "%", "ä")
    jobs = [await bench.enqueue(unique=UniqueKey(key=key)) for key in keys]
    for key, job in zip(keys, jobs, strict=True):
        answer = await bench.add(kind="other", queue="other", unique=UniqueKey(key=key))
        assert (answer.id, answer.is_duplicate) == (job, True), f"key {key!r}"


@law
async def duplicates_inside_a_batch_are_found(bench: Bench) -> None:
    """The first job of a batch with a key holds it; the rest of the batch goes through."""
    first, second, plain = bench.new(unique=SETTLED), bench.new(unique=SETTLED), bench.new()
    answers = await bench.store.enqueue([first, second, plain])
    assert [answer.id for answer in answers] == [first.id, first.id, plain.id]
    assert [answer.is_duplicate for answer in answers] == [False, True, False]
    assert await bench.store.get(second.id) is None


@law
async def the_holder_of_a_key_may_be_enqueued_again(bench: Bench) -> None:
    """An enqueue with an unknown result can be repeated although its own job holds the key."""
    new = bench.new(unique=SETTLED)
    await bench.store.enqueue([new])
    (answer,) = await bench.store.enqueue([new])
    assert answer.id == new.id


@law
async def a_race_for_a_key_has_one_winner(bench: Bench) -> None:
    """Of concurrent enqueues with a key, one is added, and all return its id."""
    answers = await asyncio.gather(*(bench.add(unique=SETTLED) for _ in range(20)))
    assert [answer.is_duplicate for answer in answers].count(False) == 1
    assert len({answer.id for answer in answers}) == 1


@law
async def a_key_is_held_until_its_job_is_settled_for_good(bench: Bench) -> None:
    """Running, a retry, a snooze and a release free nothing; every end does."""
    for end in sorted(FINISHED):
        job = await bench.start(unique=SETTLED)
        assert (await bench.add(unique=SETTLED)).is_duplicate, "held while it runs"
        for state in sorted(WAITING):
            assert await bench.leave(job, state)
            assert (await bench.add(unique=SETTLED)).is_duplicate, f"held while it is {state}"
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
            assert not (again := await bench.add(unique=unique)).is_duplicate, f"{state}, {unique}"
            assert await bench.move(Verb.CANCEL, again.id)


@law
async def taking_a_job_frees_the_key_that_it_holds_until_it_is_claimed(bench: Bench) -> None:
    """A take is a claim: the other kind of key stays held."""
    for unique in (SETTLED, CLAIMED):
        job = await bench.job_in(State.PENDING, unique=unique)
        assert await bench.move(Verb.TAKE, job.id, worker=await bench.worker(), token=1)
        assert (again := await bench.add(unique=unique)).is_duplicate is (unique is SETTLED)
        assert await bench.move(Verb.CANCEL, again.id)
        await bench.leave(await bench.job(job.id))


@law
async def a_running_job_that_is_to_be_cancelled_frees_its_key_when_it_ends(bench: Bench) -> None:
    """A retry that ends as cancelled frees the key; the request alone does not."""
    job = await bench.start(unique=SETTLED)
    assert await bench.move(Verb.CANCEL, job.id)
    assert (await bench.add(unique=SETTLED)).is_duplicate
    assert await bench.leave(job, State.SCHEDULED, due=MINUTE)
    assert not (await bench.add(unique=SETTLED)).is_duplicate


@law
async def a_key_until_claimed_is_free_once_its_job_starts(bench: Bench) -> None:
    """The next job may wait while this one runs; a retry of this one does not take the key back."""
    job = await bench.start(unique=CLAIMED)
    second = await bench.enqueue(unique=CLAIMED)
    assert await bench.leave(job, State.PENDING)
    assert await bench.leave(await bench.start_again(job.id))
    answer = await bench.add(unique=CLAIMED)
    assert (answer.id, answer.is_duplicate) == (second, True), "the second job still holds the key"


@law
async def a_key_for_a_time_is_held_for_that_time(bench: Bench) -> None:
    """Neither the end of the job nor its claim frees such a key; the store's clock does."""
    unique = UniqueKey(key="hourly", until=HOUR)
    job = await bench.start(unique=unique)
    assert await bench.leave(job)
    await bench.advance(HOUR - SECOND)
    answer = await bench.add(unique=unique)
    assert (answer.id, answer.is_duplicate) == (job.id, True)
    await bench.advance(SECOND)
    assert not (await bench.add(unique=unique)).is_duplicate


@law
async def a_key_for_a_time_is_free_after_it_though_its_job_waits(bench: Bench) -> None:
    """When the time is over the key is free, and the first job's end does not free the second's."""
    unique = UniqueKey(key="hourly", until=HOUR)
    first = await bench.enqueue(unique=unique)
    await bench.advance(HOUR)
    second = await bench.enqueue(unique=unique)
    assert await bench.leave(await bench.start_again(first))
    answer = await bench.add(unique=unique)
    assert (answer.id, answer.is_duplicate) == (second, True)


@law
async def a_redriven_job_does_not_take_its_key_back(bench: Bench) -> None:
    """A job that got the key after the first one died keeps it, even if the first is redriven."""
    dead = await bench.job_in(State.DEAD, unique=SETTLED)
    heir = await bench.enqueue(unique=SETTLED)
    assert await bench.move(Verb.REDRIVE, dead.id)
    assert await bench.leave(await bench.start_again(dead.id))
    answer = await bench.add(unique=SETTLED)
    assert (answer.id, answer.is_duplicate) == (heir, True)


@law
async def pruning_keeps_the_keys_that_are_held(bench: Bench) -> None:
    """A prune frees no key before its time, and changes nothing about those that are over."""
    span = UniqueKey(key="daily", until=DAY)
    daily, settled = await bench.enqueue(unique=span), await bench.enqueue(unique=SETTLED)
    await bench.advance(HOUR)
    await bench.store.prune(Retention(), MANY)
    assert (await bench.add(unique=span)).id == daily
    assert (await bench.add(unique=SETTLED)).id == settled
    await bench.advance(DAY)
    await bench.store.prune(Retention(), MANY)
    assert not (await bench.add(unique=span)).is_duplicate
    assert (await bench.add(unique=SETTLED)).id == settled


# -- duplicates that change the holder -------------------------------------------------------------


@law
async def a_duplicate_that_replaces_gives_its_payload_to_the_waiting_job(bench: Bench) -> None:
    """Payload, key and headers are the new one's; the id, the place and all else stay."""
    for state in sorted(WAITING):
        holder = await bench.job_in(state, unique=CLAIMED, payload=b'{"n":1}', max_retries=3)
        answer = await bench.add(
            kind=holder.kind,
            unique=REPLACING,
            payload=b'{"n":2}',
            key="tenant",
            headers={"a": "b"},
            due=DAY,
            priority=5,
        )
        assert (answer.id, answer.is_duplicate) == (holder.id, True)
        expected = replace(holder, payload=b'{"n":2}', key="tenant", headers={"a": "b"})
        assert await bench.job(holder.id) == expected
        started = await bench.start_again(holder.id) if state is State.PENDING else None
        assert started is None or started.payload == b'{"n":2}'
        await bench.move(Verb.CANCEL, holder.id)


@law
async def a_replaced_job_waits_in_one_lane(bench: Bench) -> None:
    """When its key changes, it is offered and claimed where it belongs now, and nowhere else."""
    holder = await bench.job_in(State.PENDING, unique=CLAIMED)
    await bench.add(kind=holder.kind, unique=REPLACING, key="tenant")
    heads = [head.lane for head in (await bench.store.sweep()).heads]
    assert heads == [holder.lane._replace(key="tenant")]
    worker = await bench.worker()
    assert await bench.claim(worker, holder.lane) == []
    assert len(await bench.claim(worker, heads[0])) == 1
    assert await bench.claim(worker, heads[0]) == []


@law
async def a_duplicate_that_pushes_postpones_the_due_time(bench: Bench) -> None:
    """A job that waits, due or not, is due when its latest duplicate is; its payload stays."""
    for state in sorted(WAITING):
        holder = await bench.job_in(state, unique=CLAIMED)
        later = holder.due_at + HOUR
        assert (
            await bench.add(kind=holder.kind, unique=PUSHING, due=later, payload=b"1")
        ).is_duplicate
        expected = replace(holder, due_at=later, state=State.SCHEDULED)
        assert await bench.job(holder.id) == expected
        await bench.add(kind=holder.kind, unique=PUSHING, due=MINUTE)
        await bench.add(kind=holder.kind, unique=PUSHING)
        assert await bench.job(holder.id) == expected, "never earlier than it was"
        await bench.advance(2 * HOUR)
        assert (await bench.start_again(holder.id)).payload == b"{}"


@law
async def a_duplicate_that_supersedes_does_both(bench: Bench) -> None:
    """The waiting job gets the payload and the due time of the new one."""
    holder = await bench.job_in(State.PENDING, unique=CLAIMED)
    superseding = UniqueKey(key="welcome:42", until="claimed", on_duplicate="supersede")
    await bench.add(kind=holder.kind, unique=superseding, due=HOUR, payload=b"2")
    after = await bench.job(holder.id)
    assert (after.payload, after.state) == (b"2", State.SCHEDULED)
    assert after.due_at == bench.now() + HOUR


@law
async def a_job_that_was_started_is_changed_by_no_duplicate(bench: Bench) -> None:
    """Running, waiting for its retry, or ended within the time of its key, it stays as it is."""
    held = UniqueKey(key="hourly", until=DAY, on_duplicate="supersede")
    job = await bench.start(unique=held)

    async def stays() -> None:
        before = await bench.job(job.id)
        answer = await bench.add(kind=job.kind, unique=held, due=HOUR, payload=b"2")
        assert (answer.id, answer.is_duplicate) == (job.id, True)
        assert await bench.job(job.id) == before, before.state

    await stays()
    assert await bench.leave(job, State.SCHEDULED, due=MINUTE)
    await stays()
    await bench.advance(MINUTE)
    assert await bench.leave(await bench.start_again(job.id))
    await stays()


@law
async def a_job_of_another_kind_is_changed_by_no_duplicate(bench: Bench) -> None:
    """Its handler could not take the payload."""
    held = UniqueKey(key="shared", on_duplicate="supersede")
    holder = await bench.job_in(State.PENDING, unique=held)
    answer = await bench.add(kind="other", unique=held, due=HOUR, payload=b"2")
    assert (answer.id, answer.is_duplicate) == (holder.id, True)
    assert await bench.job(holder.id) == holder


@law
async def duplicates_inside_a_batch_change_the_first(bench: Bench) -> None:
    """The last of a batch wins, as if they had come one after the other."""
    superseding = UniqueKey(key="batch", until="claimed", on_duplicate="supersede")
    jobs = [
        bench.new(unique=superseding, payload=b"%d" % n, due=timedelta(minutes=n))
        for n in (1, 3, 2)
    ]
    answers = await bench.store.enqueue(jobs)
    assert {answer.id for answer in answers} == {jobs[0].id}
    job = await bench.job(jobs[0].id)
    assert (job.payload, job.due_at) == (b"2", bench.now() + 3 * MINUTE)


@law
async def a_race_of_pushes_leaves_one_job_that_is_due_last(bench: Bench) -> None:
    """However many debounce at once, there is one job, and the latest due time is its own."""
    answers = await asyncio.gather(
        *(bench.add(unique=PUSHING, due=timedelta(minutes=n)) for n in range(20, 0, -1)),
        *(bench.add(unique=PUSHING, due=timedelta(minutes=n)) for n in range(21, 31)),
    )
    assert [answer.is_duplicate for answer in answers].count(False) == 1
    (job,) = (await bench.store.find(JobFilter(), limit=MANY)).jobs
    assert {answer.id for answer in answers} == {job.id}
    assert job.due_at == bench.now() + 30 * MINUTE


@law
async def a_key_whose_worker_crashed_is_freed_with_its_job(bench: Bench) -> None:
    """A rescued job holds its key while it waits for another run, and no longer than it lives."""
    job = await bench.start(unique=SETTLED)
    for state, held in ((State.PENDING, True), (State.DEAD, False)):
        rescuer = await bench.seasoned()
        (rescued,) = await bench.store.rescue(worker=rescuer, token=bench.number(), limit=MANY)
        assert (await bench.add(unique=SETTLED)).id == job.id, "held until it is decided upon"
        assert await bench.leave(rescued, state)
        assert (await bench.add(unique=SETTLED)).is_duplicate is held
        if held:
            await bench.start_again(job.id)
