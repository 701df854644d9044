"""Owns the laws of idempotency keys: when one counts as done, by which job, and for how long."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from windlass.core.changes import Changes, Verb
from windlass.core.job import IDEMPOTENCY_KEY, Retention
from windlass.core.states import FINISHED, WAITING, State
from windlass.testing.conformance.bench import DAY, HOUR, MANY, SECOND, Bench, leaving
from windlass.testing.conformance.law import law

KEYED: dict[str, Any] = {"kind": "charge", "headers": {IDEMPOTENCY_KEY: "invoice:42", "a": "b"}}


async def done(bench: Bench, kind: str = "charge", key: str = "invoice:42") -> UUID | None:
    """Return the id of the job that was completed with a key."""
    job = await bench.store.done(kind, key)
    return None if job is None else job.id


@law
async def a_key_is_done_when_its_job_is_completed(bench: Bench) -> None:
    """Not before, however often it is tried; then the job is found by it, with its result."""
    job = await bench.start(**KEYED)
    assert await done(bench) is None
    for state in sorted(WAITING):
        assert await bench.leave(job, state)
        assert await done(bench) is None
        job = await bench.start_again(job.id)
    assert await bench.leave(job, result=b'{"paid":true}')
    found = await bench.store.done("charge", "invoice:42")
    assert found == await bench.job(job.id)
    assert found is not None
    assert found.result == b'{"paid":true}'


@law
async def only_completion_makes_a_key_done(bench: Bench) -> None:
    """A job that is dead, or was cancelled, has not done what it should."""
    for state in sorted(FINISHED - {State.COMPLETED}):
        await bench.job_in(state, **KEYED)
        assert await done(bench) is None
    assert await bench.move(Verb.CANCEL, (await bench.job_in(State.PENDING, **KEYED)).id)
    assert await done(bench) is None


@law
async def keys_are_done_by_kind_and_told_apart_exactly(bench: Bench) -> None:
    """Another kind's key, or one that differs in case or a blank, is another key."""
    job = await bench.job_in(State.COMPLETED, **KEYED)
    await bench.job_in(State.COMPLETED, kind="other")
    assert await done(bench) == job.id
    for kind, key in (
        ("other", "invoice:42"),
        ("charge", "Invoice:42"),
        ("charge", "invoice:42 "),
        ("charge", ""),
    ):
        assert await done(bench, kind, key) is None


@law
async def the_first_job_that_is_done_keeps_the_key(bench: Bench) -> None:
    """What comes later with the same key changes nothing, whether it is completed alone or not."""
    first = await bench.job_in(State.COMPLETED, **KEYED)
    await bench.job_in(State.COMPLETED, **KEYED)
    jobs = [await bench.start(**KEYED) for _ in range(3)]
    assert await bench.store.settle([leaving(job) for job in jobs]) == [True] * 3
    assert await done(bench) == first.id


@law
async def keys_are_done_by_whatever_completes_their_jobs(bench: Bench) -> None:
    """Many at once, with a reason, or in a whole change: all of them are done."""
    jobs = [await bench.start(kind="charge", headers={IDEMPOTENCY_KEY: f"k{n}"}) for n in range(4)]
    moves = [leaving(job) for job in jobs]
    assert await bench.store.settle(moves[:2]) == [True, True]
    assert await bench.leave(jobs[2], reason="by hand")
    await bench.store.apply([], lambda _records, _now: Changes(answer=None, settle=moves[3:]))
    for number, job in enumerate(jobs):
        assert await done(bench, key=f"k{number}") == job.id


@law
async def what_is_no_key_is_never_done_and_stops_no_job(bench: Bench) -> None:
    """A job with an empty or an endless header is completed like any other, and not known by it."""
    for key in ("", "x" * 201, "x" * 100_000):
        await bench.job_in(State.COMPLETED, kind="charge", headers={IDEMPOTENCY_KEY: key})
        assert await done(bench, key=key) is None


@law
async def a_stale_completion_makes_no_key_done(bench: Bench) -> None:
    """A worker that lost its job cannot say that it is done."""
    job = await bench.start(**KEYED)
    assert not await bench.leave(job, token=bench.number())
    assert await done(bench) is None


@law
async def a_redriven_job_has_its_key_still(bench: Bench) -> None:
    """What was dead, and is completed in its second life, is done."""
    dead = await bench.job_in(State.DEAD, **KEYED)
    assert await bench.move(Verb.REDRIVE, dead.id)
    assert await bench.leave(await bench.start_again(dead.id))
    assert await done(bench) == dead.id


@law
async def a_key_is_done_for_as_long_as_finished_jobs_are_kept(bench: Bench) -> None:
    """Neither longer nor shorter; then it may be done again, and by another job."""
    first = await bench.job_in(State.COMPLETED, **KEYED)
    kept = Retention(finished=HOUR)
    await bench.advance(HOUR)
    await bench.store.prune(kept, MANY)
    assert await done(bench) == first.id
    await bench.store.prune(Retention(finished=None), MANY)
    assert await done(bench) == first.id
    await bench.advance(SECOND)
    await bench.store.prune(kept, MANY)
    assert await done(bench) is None
    second = await bench.job_in(State.COMPLETED, **KEYED)
    await bench.advance(DAY)
    assert await done(bench) == second.id
