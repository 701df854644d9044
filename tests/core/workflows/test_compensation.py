"""The laws of undoing: no job that has something to undo ends without that, whatever ends it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.core.jobs.settling import JOB, NOW, POLICY, after, failed
from windlass.core.errors import PermanentError, RetryAfter, StoreUnavailable
from windlass.core.jobs.job import Job, Saga
from windlass.core.jobs.outcomes import (
    Asleep,
    Cancelled,
    Compensated,
    Crashed,
    Outcome,
    Released,
    Snoozed,
    Succeeded,
    TimedOut,
)
from windlass.core.jobs.retry import Retry
from windlass.core.jobs.settle import Policy, Transition, finally_, give_up, settle
from windlass.core.jobs.states import State
from windlass.core.workflows.step_log import (
    Done,
    Entry,
    Slept,
    Started,
    Steps,
    UndoFailed,
    Undoing,
    Undone,
    written,
)

quick = settings(max_examples=100)
MINUTE = timedelta(minutes=1)
BEGUN: list[Entry] = [Started(name="hotel"), Done(name="hotel"), Started(name="flight")]
UNDOING = Undoing(state=State.CANCELLED, reason="withdrawn", crashes=2)
READY = replace(JOB, saga=Saga.READY, steps=tuple(map(written, BEGUN)))
OUTCOMES: list[Outcome] = [
    Succeeded(),
    Snoozed(due=MINUTE),
    Cancelled(reason="withdrawn"),
    Released(reason="shutdown"),
    TimedOut(after=MINUTE),
    Asleep(due=MINUTE, steps=(written(Slept(name="a")),)),
    failed(ValueError("x")),
    failed(PermanentError("x")),
    failed(RetryAfter("1m")),
    failed(StoreUnavailable("x")),
    *(Crashed(cause=cause, reason="died") for cause in ("alone", "process", "lease", "host")),
]


def undoing(*entries: Entry, job: Job = JOB) -> Job:
    steps = tuple(map(written, (*BEGUN, UNDOING, *entries)))
    return replace(job, saga=Saga.UNDOING, steps=steps)


def settled(job: Job, outcome: Outcome, policy: Policy = POLICY) -> Transition:
    return settle(job, outcome, policy, now=NOW, jitter=0.0)


def log_after(job: Job, move: Transition) -> Steps:
    return Steps((*job.steps, *move.steps))


@quick
@given(st.sampled_from(OUTCOMES), st.integers(0, 4), st.integers(0, 4))
def test_a_job_with_something_to_undo_ends_only_by_success(
    outcome: Outcome, failures: int, crashes: int
) -> None:
    job = replace(READY, failures=failures, crashes=crashes)
    plain = settled(replace(job, saga=None), outcome)
    move = settled(job, outcome)
    if plain.state not in (State.DEAD, State.CANCELLED):
        assert move == plain
        return
    assert (move.state, move.due, move.saga) == (State.PENDING, None, Saga.UNDOING)
    assert (move.failures, move.crashes, move.attempt) == (
        plain.failures,
        plain.crashes,
        plain.attempt,
    )
    end = log_after(job, move).undoing
    assert end is not None
    assert (end.state, end.reason, end.error) == (plain.state, plain.reason, plain.error)
    assert move.reason == f"undoing: {plain.reason}"


def test_the_last_resort_undoes_too() -> None:
    move = give_up(READY, ValueError("x"))
    assert (move.state, move.saga) == (State.PENDING, Saga.UNDOING)
    stuck = give_up(undoing(), ValueError("x"))
    assert (stuck.state, stuck.saga) == (State.DEAD, Saga.UNDOING)
    assert stuck.reason is not None
    assert stuck.reason.startswith("compensation failed: the undo of 'flight': cannot be settled")
    dead = Transition(id=JOB.id, token=7, state=State.DEAD)
    assert finally_(JOB, dead) == dead


@pytest.mark.parametrize("entry", ['{"entry":"later"}', "no JSON", '{"entry":"undone"}', "\ud800"])
def test_the_last_resort_is_one_whatever_is_in_the_log(entry: str) -> None:
    """Prevents a job that nothing can end, since its log cannot be read."""
    job = replace(undoing(Started(name="hotel")), steps=(entry,))
    move = give_up(job, ValueError("no"))
    assert (move.state, move.saga) == (State.DEAD, Saga.UNDOING)
    assert "ValueError: no" in (move.reason or "")


@quick
@given(st.sampled_from(OUTCOMES), st.integers(0, 12), st.integers(0, 4))
def test_a_job_stays_undoing_until_all_steps_are_undone(
    outcome: Outcome, failures: int, crashes: int
) -> None:
    """Whatever happens meanwhile; a person who redrives it finds everything as it was."""
    if isinstance(outcome, Succeeded):
        return  # No run of such a job succeeds: it is compensated, or it is not.
    tries = [UndoFailed(name="flight", error="")] * failures
    job = replace(undoing(*tries), crashes=2 + crashes, failures=99, max_retries=0)
    move = settled(job, outcome)
    assert move.saga is Saga.UNDOING
    assert move.state is not State.CANCELLED
    assert log_after(job, move).to_undo == ["flight", "hotel"]
    if move.state is State.DEAD:
        assert move.reason is not None
        assert move.reason.startswith("compensation failed: the undo of 'flight': ")
        assert move.reason.endswith("; undone: none; not undone: flight, hotel")
        assert log_after(job, move).undo_failures("flight") == 0


def test_when_all_is_undone_the_job_ends_as_it_would_have() -> None:
    job = undoing(Undone(name="flight"), Undone(name="hotel"))
    move = settled(job, Compensated())
    assert (move.state, move.saga) == (State.CANCELLED, Saga.OVER)
    assert move.reason == "withdrawn; undone: flight, hotel"
    assert (move.failures, move.crashes) == (0, 0)
    with pytest.raises(ValueError, match="not being undone"):
        settled(READY, Compensated())


def test_an_undo_is_retried_by_its_own_policy_and_not_by_the_jobs() -> None:
    job = replace(undoing(), failures=99, max_retries=0)
    once = Policy(retry=Retry(), max_retries=0, undo=Retry(max_retries=1, initial="8s"))
    move = settled(job, failed(ValueError("x")), once)
    assert (move.state, move.due, move.failures) == (State.SCHEDULED, timedelta(seconds=4), 1)
    again = replace(job, steps=(*job.steps, *move.steps))
    assert settled(again, failed(ValueError("x")), once).state is State.DEAD


def test_an_undo_is_tried_ten_times_again_unless_it_says_otherwise() -> None:
    job = undoing()
    for _ in range(10):
        move = settled(job, failed(ValueError("x")))
        assert move.state is State.SCHEDULED
        job = replace(after(job, move), steps=(*job.steps, *move.steps))
    assert settled(job, failed(ValueError("x"))).state is State.DEAD


def test_an_undo_that_cannot_succeed_is_given_up_at_once() -> None:
    move = settled(undoing(), failed(PermanentError("the hotel is gone")))
    assert move.state is State.DEAD
    assert "the hotel is gone" in str(move.reason)


def test_undos_that_kill_their_process_are_charged_apart_from_what_the_job_did() -> None:
    """A job that died of its third crash is undone all the same, and may crash as often again."""
    job = replace(undoing(), crashes=2)
    crash = Crashed(cause="alone", reason="died")
    for _ in range(2):
        move = settled(job, crash)
        assert move.state is State.PENDING
        job = after(job, move)
    stuck = settled(job, crash)
    assert (stuck.state, stuck.saga) == (State.DEAD, Saga.UNDOING)
    assert "compensation failed" in str(stuck.reason)


def test_a_job_of_an_ordered_kind_keeps_its_place_while_it_is_undone() -> None:
    move = settled(undoing(), failed(ValueError("x")), Policy(retry=Retry(), ordered=True))
    assert (move.state, move.saga) == (State.PENDING, Saga.UNDOING)
    assert move.hold is not None
