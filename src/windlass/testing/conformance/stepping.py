"""Owns the laws of steps: a log under the fence, and cancellation of jobs with undo steps."""

from __future__ import annotations

from windlass.core.jobs.job import Checkpoint, Job, Saga
from windlass.core.jobs.moves import Verb
from windlass.core.jobs.states import State
from windlass.core.workflows.step_log import Steps
from windlass.testing.conformance.bench import HOUR, Bench, leaving
from windlass.testing.conformance.law import law

_ENTRIES = (
    '{"done":"reserve","result":"it\'s \\"ünï\\" 🙂"}',
    '{"done": "charge", "result": null}',
)


def _entry(job: Job, *steps: str, token: int | None = None, saga: Saga | None = None) -> Checkpoint:
    assert job.token is not None
    return Checkpoint(id=job.id, token=token or job.token, steps=steps, saga=saga)


async def _with_undo(bench: Bench, state: State, **fields: object) -> Job:
    """Bring a job with steps to undo into a state."""
    job = await bench.start()
    assert await bench.store.checkpoint([_entry(job, *_ENTRIES, saga=Saga.READY)]) == [True]
    if state is not State.RUNNING:
        assert await bench.leave(job, state, **fields)
    return await bench.job(job.id)


@law
async def a_log_of_steps_is_kept_as_it_was_written(bench: Bench) -> None:
    """Entries come back one by one, unchanged, and in their order."""
    job = await bench.start()
    first, second = _ENTRIES
    assert await bench.store.checkpoint([_entry(job, first)]) == [True]
    assert await bench.store.checkpoint([_entry(job, second), _entry(job, first)]) == [True, True]
    assert (await bench.job(job.id)).steps == (first, second, first)
    assert (await bench.job(job.id)).saga is None


@law
async def a_stale_worker_cannot_add_steps(bench: Bench) -> None:
    """Without the fence no entry is added; the other jobs of the group get theirs."""
    mine, lost, over = await bench.start(), await bench.start(), await bench.start()
    await bench.leave(over)
    entries = [
        _entry(lost, "1", token=bench.number()),
        _entry(mine, "2", saga=Saga.READY),
        _entry(over, "3"),
    ]
    assert await bench.store.checkpoint(entries) == [False, True, False]
    assert (await bench.job(lost.id)).steps == ()
    assert (await bench.job(over.id)).steps == ()
    assert (await bench.job(mine.id)).steps == ("2",)
    assert (await bench.job(mine.id)).saga is Saga.READY


@law
async def steps_survive_every_transition(bench: Bench) -> None:
    """The next attempt gets the log, and every query shows it."""
    job = await bench.start()
    await bench.store.checkpoint([_entry(job, "1")])
    assert await bench.leave(job, State.SCHEDULED, due=HOUR, steps=("2", "3"))
    await bench.advance(2 * HOUR)
    again = await bench.start_again(job.id)
    assert again.steps == ("1", "2", "3")
    assert await bench.leave(again, State.DEAD, steps=("4",))
    assert (await bench.job(job.id)).steps == ("1", "2", "3", "4")
    assert await bench.move(Verb.REDRIVE, job.id) is not None
    third = await bench.start_again(job.id)
    assert third.steps == ("1", "2", "3", "4")
    assert await bench.leave(third, State.COMPLETED, result=b"1", steps=("5",))
    assert (await bench.job(job.id)).steps == ("1", "2", "3", "4", "5")


@law
async def steps_of_a_plain_success_are_kept(bench: Bench) -> None:
    """Also if the last transition adds no entry."""
    jobs = [await bench.start() for _ in range(3)]
    await bench.store.checkpoint([_entry(job, "1") for job in jobs])
    assert all(await bench.store.settle([leaving(job) for job in jobs]))
    for job in jobs:
        assert (await bench.job(job.id)).steps == ("1",)


@law
async def cancelling_a_waiting_job_with_undo_steps_starts_it(bench: Bench) -> None:
    """A cancelled job with steps to undo is pending at once, so that a worker undoes them."""
    for state in (State.SCHEDULED, State.PENDING):
        job = await _with_undo(bench, state, due=HOUR if state is State.SCHEDULED else None)
        moved = await bench.move(Verb.CANCEL, job.id, reason="withdrawn")
        assert moved is not None
        assert moved == await bench.job(job.id)
        assert (moved.state, moved.reason) == (State.PENDING, "withdrawn")
        assert moved.cancel_requested
        claimed = await bench.start_again(job.id)
        assert claimed.cancel_requested
        assert claimed.saga is Saga.READY


@law
async def a_job_with_a_cancel_request_and_undo_steps_never_waits(bench: Bench) -> None:
    """A retry settled before the request was read is due at once, and keeps the request."""
    job = await _with_undo(bench, State.RUNNING)
    await bench.move(Verb.CANCEL, job.id, reason="withdrawn")
    assert await bench.leave(job, State.SCHEDULED, due=HOUR, reason="failed")
    after = await bench.job(job.id)
    assert (after.state, after.reason) == (State.PENDING, "withdrawn")
    assert (await bench.start_again(job.id)).cancel_requested


@law
async def a_job_that_is_being_undone_cannot_be_cancelled(bench: Bench) -> None:
    """An earlier request ends with it, and a new one is refused, in every live state."""
    job = await _with_undo(bench, State.RUNNING)
    await bench.move(Verb.CANCEL, job.id, reason="withdrawn")
    assert await bench.leave(job, State.SCHEDULED, due=HOUR, saga=Saga.UNDOING, reason="undoing")
    after = await bench.job(job.id)
    assert (after.state, after.reason) == (State.SCHEDULED, "undoing")
    assert not after.cancel_requested
    assert await bench.move(Verb.CANCEL, job.id) is None
    assert await bench.move(Verb.RETRY, job.id) is not None
    assert await bench.move(Verb.CANCEL, job.id) is None
    again = await bench.start_again(job.id)
    assert again.saga is Saga.UNDOING
    assert await bench.move(Verb.CANCEL, job.id) is None
    assert await bench.leave(again, State.CANCELLED, saga=Saga.OVER, reason="withdrawn")
    assert (await bench.job(job.id)).saga is Saga.OVER


@law
async def a_second_life_goes_on_where_the_undo_failed(bench: Bench) -> None:
    """A redrive keeps the steps left to undo; a job that was undone keeps only that fact."""
    job = await _with_undo(bench, State.RUNNING)
    assert await bench.leave(job, State.DEAD, saga=Saga.UNDOING)
    assert await bench.move(Verb.REDRIVE, job.id) is not None
    again = await bench.start_again(job.id)
    assert (again.saga, again.steps) == (Saga.UNDOING, _ENTRIES)
    assert await bench.leave(again, State.DEAD, saga=Saga.OVER, steps=("1",))
    moved = await bench.move(Verb.REDRIVE, job.id)
    assert moved is not None
    assert (moved.saga, Steps(moved.steps).life) == (None, 1)
    assert Steps(moved.steps).names == []
    third = await bench.start_again(job.id)
    assert (third.saga, third.steps) == (None, moved.steps)


@law
async def steps_bind_a_job_to_its_payload(bench: Bench) -> None:
    """A dead job keeps the payload with which its steps were done, and undone."""
    for saga in (None, Saga.READY, Saga.UNDOING):
        job = await bench.start()
        await bench.store.checkpoint([_entry(job, "1", saga=saga)])
        assert await bench.leave(job, State.DEAD)
        before = await bench.job(job.id)
        assert await bench.move(Verb.REDRIVE, job.id, payload=b'{"other":1}') is None
        assert await bench.job(job.id) == before, saga
        assert await bench.move(Verb.REDRIVE, job.id, payload=job.payload) is not None
    again = await bench.start_again(job.id)
    assert await bench.leave(again, State.DEAD, saga=Saga.OVER)
    anew = await bench.move(Verb.REDRIVE, job.id, payload=b'{"other":1}')
    assert anew is not None
    assert (anew.payload, Steps(anew.steps).names) == (b'{"other":1}', [])


@law
async def many_logs_are_added_to_at_once(bench: Bench) -> None:
    """Each job gets its own entries, and the answers are in the order of the request."""
    worker, kind = await bench.worker(), f"kind-{bench.number()}"
    await bench.store.enqueue([bench.new(kind=kind) for _ in range(20)])
    jobs = await bench.claim(worker, (await bench.job((await bench.add(kind=kind)).id)).lane)
    assert await bench.store.checkpoint([_entry(job, "1", "2") for job in jobs]) == [True] * 21
    found = await bench.store.get_many([job.id for job in jobs])
    assert {job.steps for job in found.values()} == {("1", "2")}
    assert len(found) == 21
