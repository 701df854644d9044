"""Owns the laws of moves: cancel, retry, redrive, park, unpark, purge, reseal and take."""

from __future__ import annotations

from msgspec.structs import replace

from windlass.core.changes import Changes
from windlass.core.jobs.job import ErrorInfo, Job
from windlass.core.jobs.moves import FROM, Move, Verb
from windlass.core.jobs.states import FINISHED, WAITING, State
from windlass.testing.conformance.bench import (
    HOUR,
    MANY,
    MINUTE,
    SECOND,
    Bench,
    attempt_of,
    ids,
)
from windlass.testing.conformance.law import law

ENDS_IN = {
    (Verb.CANCEL, State.SCHEDULED): State.CANCELLED,
    (Verb.CANCEL, State.PENDING): State.CANCELLED,
    (Verb.CANCEL, State.RUNNING): State.RUNNING,
    (Verb.RETRY, State.SCHEDULED): State.PENDING,
    (Verb.REDRIVE, State.DEAD): State.PENDING,
    (Verb.PARK, State.SCHEDULED): State.SCHEDULED,
    (Verb.PARK, State.PENDING): State.SCHEDULED,
    (Verb.UNPARK, State.SCHEDULED): State.SCHEDULED,
    (Verb.RESEAL, State.SCHEDULED): State.SCHEDULED,
    (Verb.RESEAL, State.PENDING): State.PENDING,
    (Verb.RESEAL, State.DEAD): State.DEAD,
    (Verb.TAKE, State.PENDING): State.RUNNING,
}


async def _subject(bench: Bench, verb: Verb, state: State) -> Job:
    """Bring a job into a state, prepared so that the verb applies if it ever does."""
    job = await bench.job_in(state)
    if verb is Verb.UNPARK and state in WAITING:
        parked = await bench.move(Verb.PARK, job.id, waiting_for="event")
        assert parked is not None
        return parked
    return job


@law
async def a_verb_works_from_its_states(bench: Bench) -> None:
    """Every verb does its work in each state that allows it, and returns the job as it is then."""
    for verb, states in FROM.items():
        if verb is Verb.PURGE:
            continue
        for state in sorted(states):
            job = await _subject(bench, verb, state)
            moved = await bench.move(verb, job.id, waiting_for="event", reason="why")
            assert moved is not None, f"{verb} from {state} was refused"
            assert moved.state is ENDS_IN[verb, state], f"{verb} from {state}"
            assert moved == await bench.job(job.id), f"{verb} from {state}"


@law
async def a_reseal_changes_only_the_payload(bench: Bench) -> None:
    """The payload is replaced if it is still the expected one, and nothing else ever changes."""
    for state in sorted(FROM[Verb.RESEAL]):
        job = await bench.job_in(state)
        stale = await bench.move(Verb.RESEAL, job.id, before=b'{"other":1}', payload=b'{"new":1}')
        assert stale is None, state
        assert await bench.job(job.id) == job, state
        await bench.move(Verb.RESEAL, job.id, before=job.payload, payload=b'{"new":1}')
        assert await bench.job(job.id) == replace(job, payload=b'{"new":1}'), state


@law
async def a_verb_is_refused_in_every_other_state(bench: Bench) -> None:
    """A move that the state does not allow changes nothing and answers None."""
    for verb, states in FROM.items():
        for state in sorted(set(State) - states):
            job = await bench.job_in(state)
            assert await bench.move(verb, job.id, waiting_for="event") is None, f"{verb}, {state}"
            assert await bench.job(job.id) == job, f"{verb} from {state} changed the job"


@law
async def a_verb_on_a_missing_job_is_refused(bench: Bench) -> None:
    """A move of a job that does not exist answers None."""
    for verb in Verb:
        assert await bench.move(verb, bench.new().id, waiting_for="event") is None, verb


@law
async def a_cancelled_job_never_runs(bench: Bench) -> None:
    """Cancelling a waiting job ends it now, for the reason given."""
    for state in sorted(WAITING):
        job = await bench.job_in(state)
        await bench.advance(SECOND)
        ended = await bench.move(Verb.CANCEL, job.id, reason="moot")
        assert ended is not None
        assert (ended.state, ended.reason) == (State.CANCELLED, "moot")
        assert ended.finished_at == bench.now()
        await bench.advance(2 * HOUR)
        assert await bench.store.promote(MANY) == 0
        assert await bench.claim(await bench.worker(), job.lane) == []


@law
async def a_retried_job_is_due_now(bench: Bench) -> None:
    """Retry makes a scheduled job pending, behind those that were due before."""
    job = await bench.enqueue(due=HOUR)
    first = await bench.enqueue()
    await bench.advance(SECOND)
    moved = await bench.move(Verb.RETRY, job)
    assert moved is not None
    assert moved.due_at == bench.now()
    worker = await bench.worker()
    assert ids(await bench.claim(worker)) == [first, job]


@law
async def a_parked_job_is_not_retried(bench: Bench) -> None:
    """A parked job continues only when the event that it waits for happens."""
    job = await bench.enqueue()
    parked = await bench.move(Verb.PARK, job, waiting_for="event")
    assert await bench.move(Verb.RETRY, job) is None
    assert await bench.move(Verb.UNPARK, job, waiting_for="other") is None
    assert await bench.job(job) == parked
    assert await bench.move(Verb.UNPARK, job, waiting_for="event")


@law
async def a_job_that_is_not_parked_is_not_unparked(bench: Bench) -> None:
    """A scheduled job waits for its time, which is not an event that could come."""
    job = await bench.job_in(State.SCHEDULED)
    for event in ("event", ""):
        assert await bench.move(Verb.UNPARK, job.id, waiting_for=event) is None
    assert await bench.job(job.id) == job


@law
async def a_parked_job_can_be_cancelled(bench: Bench) -> None:
    """Cancel works from every live state; later transitions find the job ended."""
    job = await bench.enqueue()
    await bench.move(Verb.PARK, job, waiting_for="event")
    assert await bench.move(Verb.CANCEL, job)
    assert await bench.move(Verb.UNPARK, job, waiting_for="event") is None
    assert await bench.state(job) is State.CANCELLED


@law
async def a_redriven_job_has_a_new_life(bench: Bench) -> None:
    """Redrive forgets failures, crashes and expiry, keeps the history, and queues the job now."""
    job = await bench.start(expires=MINUTE)
    history = (attempt_of(job),)
    error = ErrorInfo(type="ValueError", message="broken")
    assert await bench.leave(
        job, State.DEAD, failures=1, crashes=1, attempt=history[0], error=error
    )
    await bench.advance(HOUR)
    alive = await bench.move(Verb.REDRIVE, job.id)
    assert alive is not None
    assert (alive.state, alive.due_at) == (State.PENDING, bench.now())
    assert (alive.failures, alive.crashes, alive.history) == (0, 0, history)
    assert (alive.finished_at, alive.started_at, alive.worker) == (None, None, None)
    assert alive.expires_at is None, "or it would expire before it could start"
    assert (await bench.start_again(job.id)).attempt == 2


@law
async def a_redriven_job_may_have_another_payload(bench: Bench) -> None:
    """Redrive can replace the payload of a dead job; without a new one it keeps its own."""
    first = await bench.job_in(State.DEAD)
    second = await bench.job_in(State.DEAD)
    fixed = await bench.move(Verb.REDRIVE, first.id, payload=b'{"fixed":"yes"}')
    alike = await bench.move(Verb.REDRIVE, second.id)
    assert fixed is not None
    assert alike is not None
    assert (fixed.payload, alike.payload) == (b'{"fixed":"yes"}', second.payload)
    assert (await bench.job(first.id)).payload == b'{"fixed":"yes"}'
    assert (await bench.start_again(first.id)).payload == b'{"fixed":"yes"}'


@law
async def a_redriven_job_is_not_cancelled_by_an_old_request(bench: Bench) -> None:
    """A request to cancel the life before does not end the new one."""
    job = await bench.start()
    assert await bench.move(Verb.CANCEL, job.id)
    assert await bench.leave(job, State.DEAD)
    assert await bench.move(Verb.REDRIVE, job.id)
    assert await bench.leave(await bench.start_again(job.id), State.PENDING)
    assert await bench.state(job.id) is State.PENDING


@law
async def a_purged_job_is_gone(bench: Bench) -> None:
    """Purge returns a job that has ended for the last time, however it ended."""
    for state in sorted(FROM[Verb.PURGE]):
        job = await bench.job_in(state)
        assert await bench.move(Verb.PURGE, job.id) == job, state
        assert await bench.store.get(job.id) is None, state
        assert await bench.move(Verb.PURGE, job.id) is None, state
        assert await bench.move(Verb.REDRIVE, job.id) is None, state


@law
async def many_jobs_are_purged_together(bench: Bench) -> None:
    """Each that has ended is deleted and returned in its place; the others stay."""
    jobs = [await bench.job_in(state) for state in State for _ in range(2)]
    moves = [Move(verb=Verb.PURGE, id=job.id) for job in jobs]
    applied = await bench.store.apply([], lambda _, __: Changes(answer=None, moves=moves))
    assert list(applied.moved) == [job if job.state in FINISHED else None for job in jobs]
    for job in jobs:
        kept = None if job.state in FINISHED else job
        assert await bench.store.get(job.id) == kept, job.state


@law
async def a_taken_job_runs_under_its_worker(bench: Bench) -> None:
    """Take starts one job out of its turn: its fence holds, and no other worker gets it."""
    first, last = await bench.enqueue(), await bench.enqueue()
    worker, token = await bench.worker(), bench.number()
    await bench.advance(SECOND)
    taken = await bench.move(Verb.TAKE, last, worker=worker, token=token)
    assert taken is not None
    assert (taken.state, taken.worker, taken.token) == (State.RUNNING, worker, token)
    assert (taken.attempt, taken.started_at) == (1, bench.now())
    assert taken == await bench.job(last)
    assert [job.id for job in await bench.store.held(worker)] == [last]
    assert ids(await bench.claim(await bench.worker())) == [first]
    assert not await bench.leave(replace(taken, token=token + 1))
    assert await bench.leave(taken)
    assert (await bench.job(last)).state is State.COMPLETED


@law
async def a_waiting_or_dead_job_is_taken_in_one_change(bench: Bench) -> None:
    """Between a retry or redrive and the take after it, no other worker can claim the job."""
    for state, verb in ((State.SCHEDULED, Verb.RETRY), (State.DEAD, Verb.REDRIVE)):
        job = await bench.job_in(state)
        worker, token = await bench.worker(), bench.number()
        take = Move(verb=Verb.TAKE, id=job.id, worker=worker, token=token)
        changes = Changes(answer=None, moves=[Move(verb=verb, id=job.id), take])
        applied = await bench.store.apply([], lambda _records, _now, made=changes: made)  # type: ignore[misc]
        assert applied.moved[1] == await bench.job(job.id), state
        assert await bench.claim(await bench.worker(), job.lane) == [], state
        held = applied.moved[1]
        assert held is not None, state
        assert await bench.leave(held), state


@law
async def a_taken_job_is_rescued_when_its_lease_ends(bench: Bench) -> None:
    """A worker that takes a job and vanishes loses it as after a claim."""
    job = await bench.job_in(State.PENDING)
    taken = await bench.move(Verb.TAKE, job.id, worker=await bench.worker(), token=bench.number())
    rescuer = await bench.seasoned()
    rescued = await bench.store.rescue(worker=rescuer, token=bench.number(), limit=MANY)
    assert ids(rescued) == [job.id]
    assert taken is not None
    assert not await bench.leave(taken)
