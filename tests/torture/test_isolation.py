"""Isolated handlers that crash, hang, fork and eat: worker and neighbours live."""

from __future__ import annotations

import os
import signal

import pytest

from tests.support.postgres_workers import on_sqlite
from tests.support.worker_processes import NOISE, WorkerProcess, Yard, until
from tests.torture.programs.families import alive
from windlass import State

APP = "killers:app"


def ward(yard: Yard) -> WorkerProcess:
    worker = yard.worker(app=APP, isolated_processes=1)
    worker.started()
    return worker


def all_is_well(yard: Yard, worker: WorkerProcess) -> None:
    """Make sure that the worker runs jobs on its loop and in a child, as if nothing had been."""
    near, isolated = (yard.settled(yard.enqueue(kind)) for kind in ("neighbour", "quiet"))
    assert near.result == str(worker.pid).encode()
    assert isolated.state is State.COMPLETED
    assert isolated.result != near.result
    assert worker.is_running()


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("segfault", "its process died of SIGSEGV"),
        ("leave", "its process exited with code 3"),
        ("close_everything", "its process lost the connection to its worker"),
    ],
)
def test_a_job_that_kills_its_process_is_charged_and_nobody_else(
    yard: Yard, kind: str, reason: str
) -> None:
    """Prevents a worker, and a hundred neighbours, that die of one job's native code."""
    worker = ward(yard)
    job = yard.enqueue(kind)
    neighbours = [yard.settled(yard.enqueue("neighbour")) for _ in range(3)]
    dead = yard.settled(job)

    assert (dead.state, dead.crashes, dead.failures) == (State.DEAD, 3, 0)
    assert dead.error is not None
    assert reason in dead.error.message
    assert "famous.last_words" in dead.error.traceback
    assert ("Segmentation fault" in dead.error.traceback) is (kind == "segfault")
    assert {job.result for job in neighbours} == {str(worker.pid).encode()}
    all_is_well(yard, worker)


@on_sqlite
@pytest.mark.parametrize(
    "kind",
    [
        "loop_in_python",
        "loop_in_c",
        *(
            pytest.param(kind, marks=pytest.mark.long)
            for kind in ("loop_in_a_coroutine", "stand_still", "leave_it_to_a_program")
        ),
    ],
)
def test_a_job_that_does_not_return_is_killed(yard: Yard, kind: str) -> None:
    """Case 9. Prevents a timeout that a handler, or C code below it, can outlast."""
    worker = ward(yard)
    job = yard.enqueue(kind)
    child = yard.begun(job)
    late = yard.settled(job)

    assert (late.state, late.failures, late.crashes) == (State.DEAD, 1, 0)
    assert [attempt.outcome for attempt in late.history] == ["timed out"]
    until(lambda: not alive(child), "the end of the child", NOISE)
    if kind == "leave_it_to_a_program":
        program = int((yard.directory / "program").read_text())
        until(lambda: not alive(program), "the end of what it started", NOISE)
    all_is_well(yard, worker)


@pytest.mark.long
def test_a_job_that_eats_memory_is_killed_before_it_has_all(yard: Yard) -> None:
    """Prevents the kernel from choosing the worker when memory runs out."""
    worker = ward(yard)
    job = yard.settled(yard.enqueue("eat"))

    assert (job.state, job.failures, job.crashes) == (State.DEAD, 1, 0)
    assert job.error is not None
    assert job.error.type == "windlass.MemoryExceeded"
    all_is_well(yard, worker)


@pytest.mark.long
@on_sqlite
@pytest.mark.parametrize(
    ("kind", "result"),
    [
        ("fork_and_exit", b'"forked"'),
        ("fork_and_return", b'"parent"'),
        ("fork_in_a_coroutine", b'"parent"'),
        ("print_a_lot", b'"printed"'),
        ("close_some", b'"closed"'),
    ],
)
def test_handlers_that_only_look_dangerous_do_no_harm(yard: Yard, kind: str, result: bytes) -> None:
    """Case 11. Prevents a fork that speaks for its parent, and a line that a handler closes."""
    worker = ward(yard)
    done = yard.settled(yard.enqueue(kind))

    assert (done.state, done.result, done.attempt) == (State.COMPLETED, result, 1)
    assert not worker.events("child.died")
    all_is_well(yard, worker)


@on_sqlite
@pytest.mark.parametrize(
    ("kind", "patches"),
    [
        ("wait", {}),
        ("wait_holding_the_lock", {}),
        ("wait", {"windlass.worker.isolation.child_process:_PROGRAM": "deaf"}),
    ],
)
def test_a_child_does_not_outlive_its_worker(
    yard: Yard, kind: str, patches: dict[str, str]
) -> None:
    """Prevents a run that goes on beside the one that has taken its place.

    The kernel ends it, even if it notices nothing; where no kernel does, the end of its line does.
    """
    from windlass.worker.isolation.child_process import _PROGRAM

    # Time zones are found by way of the platform, so they are loaded before it is another.
    deaf = "import sys, zoneinfo; sys.platform = 'other'; " + _PROGRAM
    worker = yard.worker(app=APP, isolated_processes=1, patches=dict.fromkeys(patches, deaf))
    payload = {"gate": "never"} if kind == "wait" else {}
    child = yard.begun(yard.enqueue(kind, **payload))
    assert alive(child)
    worker.kill()
    until(lambda: not alive(child), "the end of the child", NOISE)


@on_sqlite
def test_signals_of_the_terminal_and_the_service_manager_are_the_workers(yard: Yard) -> None:
    """Prevents a drain in which the children are gone before their jobs are done."""
    worker = ward(yard)
    job = yard.enqueue("wait", gate="drain")
    child = yard.begun(job)
    for number in (signal.SIGTERM, signal.SIGINT):
        os.kill(child, number)
    worker.send(signal.SIGTERM)
    worker.event("worker.draining")
    yard.open_gate("drain")

    assert worker.ended() == 0
    done = yard.settled(job)
    assert (done.state, done.result, done.attempt) == (State.COMPLETED, str(child).encode(), 1)
    assert not alive(child)
