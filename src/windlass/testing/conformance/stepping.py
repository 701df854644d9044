"""Owns the laws of steps: a log under the fence, and what cancelling means for who has to undo."""

from __future__ import annotations

from windlass.core.changes import Verb
from windlass.core.job import Checkpoint, Job, Saga
from windlass.core.states import State
from windlass.core.steps import Steps
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
    """Bring a job that has something to undo into a state."""
    job = await bench.start()
    assert await bench.store.checkpoint([_entry(job, *_ENTRIES, saga=Saga.READY)]) == [True]
    if state is not State.RUNNING:
        assert await bench.leave(job, state, **fields)
    return await bench.job(job.id)


@law
async def a_log_of_steps_is_kept_as_it_was_written(bench: Bench) -> None:
    """Entries come back one by one, to the letter, and in their order."""
    job = await bench.start()
    first, second = _ENTRIES
    assert await bench.store.checkpoint([_entry(job, first)]) == [True]
    assert await bench.store.checkpoint([_entry(job, second), _entry(job, first)]) == [True, True]
    assert (await bench.job(job.id)).steps == (first, second, first)
    assert (await bench.job(job.id)).saga is None


@law
async def a_stale_worker_cannot_add_steps(bench: Bench) -> None:
    """Where the fence does not match nothing is added, and the others of the group are."""
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
async def steps_survive_whatever_becomes_of_the_job(bench: Bench) -> None:
    """The next attempt is handed the log, and so is whoever looks at the job afterwards."""
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
    """Also if the last transition has nothing to add to them."""
    jobs = [await bench.start() for _ in range(3)]
    await bench.store.checkpoint([_entry(job, "1") for job in jobs])
    assert all(await bench.store.settle([leaving(job) for job in jobs]))
    for job in jobs:
        assert (await bench.job(job.id)).steps == ("1",)


@law
async def cancelling_who_waits_and_has_something_to_undo_starts_it(bench: Bench) -> None:
    """It is pending at once, and asked to cancel, so that a worker undoes what there is."""
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
async def who_was_asked_to_cancel_and_has_something_to_undo_never_waits(bench: Bench) -> None:
    """A retry that was settled before the request was heard is due at once, and still asked."""
    job = await _with_undo(bench, State.RUNNING)
    await bench.move(Verb.CANCEL, job.id, reason="withdrawn")
    assert await bench.leave(job, State.SCHEDULED, due=HOUR, reason="failed")
    after = await bench.job(job.id)
    assert (after.state, after.reason) == (State.PENDING, "withdrawn")
    assert (await bench.start_again(job.id)).cancel_requested


@law
async def what_is_being_undone_cannot_be_cancelled(bench: Bench) -> None:
    """A request from before is over with it, and a new one is refused, in every live state."""
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
    """A redrive keeps what is to be undone; once all is undone, only that is known."""
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
    """A dead job gets no other payload than the one with which its steps were done, and undone."""
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
    """Each gets its own, and the answers are in the order of the question."""
    worker, kind = await bench.worker(), f"kind-{bench.number()}"
    await bench.store.enqueue([bench.new(kind=kind) for _ in range(20)])
    jobs = await bench.claim(worker, (await bench.job((await bench.add(kind=kind)).id)).lane)
    assert await bench.store.checkpoint([_entry(job, "1", "2") for job in jobs]) == [True] * 21
    found = await bench.store.get_many([job.id for job in jobs])
    assert {job.steps for job in found.values()} == {("1", "2")}
    assert len(found) == 21
