"""A job that ends its worker's event loop is a crash like any other, or fails: never for ever."""

from __future__ import annotations

import pytest

from tests.support.worker_processes import CALM, PATIENCE, Yard
from windlass import State

APP = "loop_enders:app"


@pytest.mark.parametrize(
    "kind",
    [
        "stop_the_loop",
        pytest.param("exit_in_a_callback", marks=pytest.mark.long),
        pytest.param("cancel_all_tasks", marks=pytest.mark.long),
    ],
)
def test_a_job_that_ends_the_loop_is_charged_with_crashes_and_is_dead(
    yard: Yard, kind: str
) -> None:
    """Prevents a worker that crashes for ever, since the job is given back as by a shutdown."""
    fleet = yard.fleet(app=APP, patches=CALM)
    neighbour = yard.enqueue("neighbour")
    yard.begun(neighbour)
    dead = yard.settled(yard.enqueue(kind), State.DEAD, within=2 * PATIENCE)

    assert [each.outcome for each in dead.history] == ["suspected", *["crashed"] * 3]
    assert (dead.crashes, dead.failures) == (3, 0)
    assert dead.reason is not None
    assert dead.reason.startswith("killed its process 3 times: its process ")
    assert len(fleet.events("worker.crashed")) == len(fleet.events("process.ended")) == 1
    yard.open_gate("done")
    done = yard.settled(neighbour)
    assert (done.state, done.failures, done.crashes) == (State.COMPLETED, 0, 0)


def test_an_exit_from_a_signal_handler_is_a_crash_that_ends(yard: Yard) -> None:
    """Prevents the same where a handler's timer strikes while the loop waits.

    In a child its handler is not in the main thread, so that it cannot set its signal handler.
    """
    fleet = yard.fleet(app=APP, patches=CALM)
    job = yard.enqueue("exit_in_a_signal_handler")
    dead = yard.settled(job, State.DEAD, within=2 * PATIENCE)
    assert [each.outcome for each in dead.history] == ["suspected", "failed"] * 2
    assert (dead.crashes, dead.failures) == (0, 2)
    assert len(fleet.events("worker.crashed")) == 2


def test_a_job_that_signals_its_own_process_is_a_suspect(yard: Yard) -> None:
    """Prevents workers that are replaced for ever, since the job is given back as by a shutdown.

    A child ignores the signal, so the job ends there.
    """
    fleet = yard.fleet(app=APP, patches=CALM, shutdown_timeout="0.1s")
    done = yard.settled(yard.enqueue("signal_its_process"))
    assert (done.state, done.attempt) == (State.COMPLETED, 2)
    assert [each.outcome for each in done.history] == ["suspected"]
    assert fleet.event("process.leaving")["why"] == "signal received"


ERRORS = {
    "gather_an_interrupt": "KeyboardInterrupt",
    "await_an_exit": "SystemExit",
    "exit_in_retry_when": "ValueError",
    "exit_in_a_classifier": "LookupError",
}


def test_an_exit_in_a_task_or_a_policy_of_a_job_fails_that_job_alone(yard: Yard) -> None:
    """Prevents a process that ends, with all its jobs, for what one of them could be told."""
    fleet = yard.fleet(app=APP, patches=CALM)
    neighbour = yard.enqueue("neighbour")
    yard.begun(neighbour)
    jobs = {kind: yard.enqueue(kind) for kind in ERRORS}
    for kind, error in ERRORS.items():
        dead = yard.settled(jobs[kind], State.DEAD)
        assert (kind, dead.failures, dead.crashes) == (kind, 3, 0)
        assert dead.error is not None
        assert dead.error.type == error

    yard.open_gate("done")
    assert yard.settled(neighbour).attempt == 1
    assert not fleet.events("process.ended")


def test_an_exit_in_a_task_that_nobody_awaits_is_logged_and_ends_nothing(yard: Yard) -> None:
    fleet = yard.fleet(app=APP, patches=CALM)
    done = yard.settled(yard.enqueue("leave_an_exit_behind"))
    assert (done.state, done.attempt) == (State.COMPLETED, 1)
    assert "leaving" in fleet.event("task.exited")["exception"]
    assert not fleet.events("process.ended")
