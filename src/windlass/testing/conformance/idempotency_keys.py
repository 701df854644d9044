"""Owns the laws of idempotency keys: when a key is done, by which job, and for how long."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from windlass.core.changes import Changes
from windlass.core.jobs.job import IDEMPOTENCY_KEY
from windlass.core.jobs.moves import Verb
from windlass.core.jobs.queries import Retention
from windlass.core.jobs.states import FINISHED, WAITING, State
from windlass.testing.conformance.bench import DAY, HOUR, MANY, SECOND, Bench, leaving
from windlass.testing.conformance.law import law

KEYED: dict[str, Any] = {"kind": "charge", "headers": {IDEMPOTENCY_KEY: "invoice:42", "a": "b"}}


async def done(bench: Bench, kind: str = "charge", key: str = "invoice:42") -> UUID | None:
    """Return the id of the job that was completed with a key."""
    job = await bench.store.done(kind, key)
    return None if job is None else job.id


@law
async def a_key_is_done_when_its_job_is_completed(bench: Bench) -> None:
    """A key is not done before, whatever the attempts; then it finds the job with its result."""
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
    """A dead or cancelled job does not make its key done."""
    for state in sorted(FINISHED - {State.COMPLETED}):
        await bench.job_in(state, **KEYED)
        assert await done(bench) is None
    assert await bench.move(Verb.CANCEL, (await bench.job_in(State.PENDING, **KEYED)).id)
    assert await done(bench) is None


@law
async def keys_belong_to_a_kind_and_are_compared_exactly(bench: Bench) -> None:
    """The same key of another kind, or one that differs in case or a blank, is another key."""
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
    """Later completions with the same key change nothing, alone or in a batch."""
    first = await bench.job_in(State.COMPLETED, **KEYED)
    await bench.job_in(State.COMPLETED, **KEYED)
    jobs = [await bench.start(**KEYED) for _ in range(3)]
    assert await bench.store.settle([leaving(job) for job in jobs]) == [True] * 3
    assert await done(bench) == first.id


@law
async def every_way_to_complete_a_job_makes_its_key_done(bench: Bench) -> None:
    """Completed in a batch, with a reason, or in a whole change: in every case the key is done."""
    jobs = [await bench.start(kind="charge", headers={IDEMPOTENCY_KEY: f"k{n}"}) for n in range(4)]
    moves = [leaving(job) for job in jobs]
    assert await bench.store.settle(moves[:2]) == [True, True]
    assert await bench.leave(jobs[2], reason="by hand")
    await bench.store.apply([], lambda _records, _now: Changes(answer=None, settle=moves[3:]))
    for number, job in enumerate(jobs):
        assert await done(bench, key=f"k{number}") == job.id


@law
async def an_invalid_key_is_never_done_and_stops_no_job(bench: Bench) -> None:
    """A job with an empty or overlong header is completed like any other, and sets no key."""
    for key in ("", "x" * 201, "x" * 10_000):
        await bench.job_in(State.COMPLETED, kind="charge", headers={IDEMPOTENCY_KEY: key})
        assert await done(bench, key=key) is None


@law
async def a_stale_completion_makes_no_key_done(bench: Bench) -> None:
    """A worker that lost its job cannot make its key done."""
    job = await bench.start(**KEYED)
    assert not await bench.leave(job, token=bench.number())
    assert await done(bench) is None


@law
async def a_redriven_job_keeps_its_idempotency_key(bench: Bench) -> None:
    """A dead job that is redriven and completed makes its key done."""
    dead = await bench.job_in(State.DEAD, **KEYED)
    assert await bench.move(Verb.REDRIVE, dead.id)
    assert await bench.leave(await bench.start_again(dead.id))
    assert await done(bench) == dead.id


@law
async def a_key_is_done_for_as_long_as_finished_jobs_are_kept(bench: Bench) -> None:
    """Neither longer nor shorter; after that another job may complete the key again."""
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
