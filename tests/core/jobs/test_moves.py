"""The laws of moves: what each verb does to a job, and where it does nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from windlass.core.jobs.ids import job_id
from windlass.core.jobs.job import Attempt, Job
from windlass.core.jobs.moves import FROM, Move, Verb, moved
from windlass.core.jobs.states import State, may_move
from windlass.core.workflows.step_log import Done, Failed, written

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
PAST = Attempt(number=1, worker="w", started_at=NOW - HOUR, duration=HOUR, outcome="failed")


def job(state: State, *, waiting_for: str | None = None, due_at: datetime = NOW + HOUR) -> Job:
    return Job(
        id=job_id(0, 0),
        kind="send",
        queue="mail",
        priority=0,
        key="",
        state=state,
        payload=b"{}",
        due_at=due_at,
        created_at=NOW - HOUR,
        expires_at=NOW - timedelta(minutes=1),
        failures=4,
        crashes=1,
        attempt=5,
        waiting_for=waiting_for,
        history=(PAST,),
    )


def do(verb: Verb, subject: Job, *, waiting_for: str = "", reason: str = "") -> Job | None:
    move = Move(verb=verb, id=subject.id, waiting_for=waiting_for, reason=reason)
    return moved(subject, move, NOW)


@pytest.mark.parametrize("verb", Verb)
@pytest.mark.parametrize("state", State)
def test_a_verb_does_nothing_outside_its_states(verb: Verb, state: State) -> None:
    if state not in FROM[verb]:
        assert do(verb, job(state)) is None


@given(
    st.sampled_from(Verb),
    st.sampled_from(State),
    st.none() | st.just("flow:1"),
    st.sampled_from(["", "flow:1", "flow:2"]),
    st.sampled_from([NOW - HOUR, NOW, NOW + HOUR]),
)
def test_every_verb_makes_a_legal_move_or_none(
    verb: Verb, state: State, parked: str | None, waiting_for: str, due_at: datetime
) -> None:
    before = job(state, waiting_for=parked, due_at=due_at)
    after = do(verb, before, waiting_for=waiting_for)
    if after is not None:
        assert after.state is before.state or may_move(before.state, after.state)
        assert (after.id, after.payload, after.history) == (
            before.id,
            before.payload,
            before.history,
        )


@pytest.mark.parametrize("state", [State.SCHEDULED, State.PENDING])
def test_cancel_ends_a_waiting_job(state: State) -> None:
    after = do(Verb.CANCEL, job(state), reason="moot")
    assert after is not None
    assert (after.state, after.finished_at, after.reason) == (State.CANCELLED, NOW, "moot")


def test_cancel_asks_a_running_job_to_end() -> None:
    after = do(Verb.CANCEL, job(State.RUNNING), reason="moot")
    assert after is not None
    assert (after.state, after.cancel_requested) == (State.RUNNING, True)
    assert after.finished_at is None


def test_retry_makes_a_scheduled_job_due_now() -> None:
    after = do(Verb.RETRY, job(State.SCHEDULED))
    assert after is not None
    assert (after.state, after.due_at) == (State.PENDING, NOW)


def test_retry_does_not_free_a_parked_job() -> None:
    assert do(Verb.RETRY, job(State.SCHEDULED, waiting_for="flow:1")) is None


def test_redrive_forgets_failures_crashes_and_expiry_and_keeps_the_history() -> None:
    dead = replace(job(State.DEAD), finished_at=NOW - HOUR, cancel_requested=True)
    after = do(Verb.REDRIVE, dead)
    assert after is not None
    assert (after.state, after.due_at) == (State.PENDING, NOW)
    assert (after.failures, after.crashes, after.expires_at) == (0, 0, None)
    assert (after.finished_at, after.worker, after.cancel_requested) == (None, None, False)
    assert after.history == (PAST,)
    assert after.attempt == dead.attempt


def test_a_job_whose_steps_have_only_failed_may_have_another_payload() -> None:
    dead = replace(job(State.DEAD), steps=(written(Failed(name="pay", error="no such card")),))
    move = Move(verb=Verb.REDRIVE, id=dead.id, payload=b'{"card":2}')
    after = moved(dead, move, NOW)
    assert after is not None
    assert after.payload == b'{"card":2}'
    done = replace(dead, steps=(*dead.steps, written(Done(name="pay"))))
    assert moved(done, move, NOW) is None


@pytest.mark.parametrize("state", [State.SCHEDULED, State.PENDING])
def test_a_parked_job_is_scheduled_and_waits_for_something(state: State) -> None:
    after = do(Verb.PARK, job(state), waiting_for="flow:1")
    assert after is not None
    assert (after.state, after.waiting_for) == (State.SCHEDULED, "flow:1")


@pytest.mark.parametrize(
    ("due_at", "state"),
    [(NOW - HOUR, State.PENDING), (NOW, State.PENDING), (NOW + HOUR, State.SCHEDULED)],
)
def test_an_unparked_job_runs_when_it_is_due_and_not_before(due_at: datetime, state: State) -> None:
    parked = job(State.SCHEDULED, waiting_for="flow:1", due_at=due_at)
    after = do(Verb.UNPARK, parked, waiting_for="flow:1")
    assert after is not None
    assert (after.state, after.waiting_for) == (state, None)


@pytest.mark.parametrize("parked_for", [None, "flow:1"])
def test_unpark_frees_only_what_waits_for_that(parked_for: str | None) -> None:
    parked = job(State.SCHEDULED, waiting_for=parked_for)
    assert do(Verb.UNPARK, parked, waiting_for="flow:2") is None
    assert do(Verb.UNPARK, parked) is None
