"""Signals that come twice, in the middle of something, or to every process at once."""

from __future__ import annotations

import signal
from collections.abc import Iterable

import pytest

from tests.support.worker_processes import WorkerProcess, Yard, until
from tests.torture.programs.families import alive, descendants, signal_all
from windlass import State

pytestmark = pytest.mark.long


def test_a_hangup_while_a_fleet_rolls_makes_it_roll_once_more(yard: Yard) -> None:
    """Prevents a second deploy, right after the first, from being taken for the same one."""
    fleet = yard.fleet("--processes=2")
    fleet.crew(2)
    fleet.send(signal.SIGHUP)
    fleet.event("supervisor.rolling")
    for _ in range(2):
        fleet.send(signal.SIGHUP)
        fleet.event("supervisor.rolling_again")
    crew = list(fleet.crew(6))
    until(lambda: sum(map(alive, crew)) == 2, "the end of all but the newest workers")

    assert [pid for pid in crew if alive(pid)] == crew[-2:]
    assert len(fleet.events("supervisor.rolling")) == 2, "however often it was told meanwhile"
    ended = until(
        lambda: len(found := fleet.events("process.ended")) == 4 and found, "the word of their end"
    )
    assert {event["why"] for event in ended or ()} == {"replaced"}
    assert yard.settled(yard.enqueue("quick")).state is State.COMPLETED
    assert len(fleet.events("worker.started")) == 6


def test_a_hangup_of_everybody_at_once_is_a_roll(yard: Yard) -> None:
    """Prevents a terminal that is closed, or a `kill` of the whole group, from ending workers.

    Isolated children are below the workers, and run a job, too.
    """
    fleet = yard.fleet("--processes=2", app="killers:app", isolated_processes="1")
    old = fleet.crew(2)
    job = yard.enqueue("wait", gate="done")
    child = yard.begun(job)
    signal_all([fleet.pid, *descendants(fleet.pid)], signal.SIGHUP)
    fleet.crew(4)
    yard.open_gate("done")
    done = yard.settled(job)
    until(lambda: not any(map(alive, old)), "the end of the old workers")

    assert (done.state, done.history, done.result) == (State.COMPLETED, (), str(child).encode())
    assert len(fleet.events("worker.started")) == 4
    assert len(fleet.events("supervisor.rolling")) == 1
    ended = until(
        lambda: len(found := fleet.events("process.ended")) == 2 and found, "the word of their end"
    )
    assert {(event["why"], event["how"]) for event in ended or ()} == {
        ("replaced", "exited with code 0")
    }


@pytest.mark.parametrize("apart", [False, True])
def test_a_term_to_everybody_at_once_is_one_drain(yard: Yard, apart: bool) -> None:
    """Case 15. Prevents a service manager, which signals all, from being taken for impatient.

    Apart, a worker is sure to be told twice: by its supervisor, and then by the service manager.
    """
    fleet = yard.fleet("--processes=2", app="killers:app", isolated_processes="1")
    crew = fleet.crew(2)
    job = yard.enqueue("wait", gate="done")
    child = yard.begun(job)
    below = descendants(fleet.pid)
    fleet.send(signal.SIGTERM)
    if apart:
        _wait_for_drain(fleet, crew.values())
    signal_all(below, signal.SIGTERM)
    _wait_for_drain(fleet, crew.values())
    yard.open_gate("done")

    assert fleet.ended() == 0
    done = yard.job(job)
    assert (done.state, done.history, done.result) == (State.COMPLETED, (), str(child).encode())
    assert len(fleet.events("worker.started")) == 2, "nobody is replaced on the way out"
    for pid in crew:
        assert fleet.event("process.ended", pid=pid)["how"] == "exited with code 0"
    assert not any(map(alive, [*crew, child]))


def _wait_for_drain(fleet: WorkerProcess, workers: Iterable[str]) -> None:
    for worker in workers:
        fleet.event("worker.draining", worker_id=worker)
