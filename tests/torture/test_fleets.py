"""Fleets over time: they grow and shrink, move to another store, and tell a loop from a crash."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest

from tests.support.postgres_workers import PostgresYard, SqliteYard, on_sqlite
from tests.support.worker_processes import LEASE, Yard, until
from tests.torture.conftest import migrate
from tests.torture.programs.families import alive
from windlass import State

pytestmark = pytest.mark.long

# -- their store -------------------------------------------------------------------------------


@pytest.fixture
def next_yard(request: pytest.FixtureRequest, yard: Yard, tmp_path: Path) -> Iterator[Yard]:
    """Give another store of the same sort, and a yard around it with the same ledger."""
    next_store: Yard
    if isinstance(yard, PostgresYard):
        url = request.getfixturevalue("postgres_url")
        migrate(url)
        next_store = PostgresYard(tmp_path, url)
    else:
        (tmp_path / "next").mkdir()
        next_store = SqliteYard(tmp_path / "next")
        next_store.ledger = yard.ledger
    with closing(next_store) as opened:
        yield opened


def test_a_hangup_moves_a_fleet_to_the_store_that_its_configuration_names_by_now(
    yard: Yard, next_yard: Yard
) -> None:
    """Prevents leases that are renewed in the store of yesterday, so that jobs run twice today.

    The handler holds the interpreter of its worker, so that only the supervisor can renew.
    """
    configuration = yard.directory / "windlass.toml"
    configuration.write_text(f'url = "{yard.workers_url}"\n')
    fleet = yard.fleet("--processes=2", environ={"WINDLASS_URL": ""})
    old = fleet.crew(2)
    late = yard.enqueue("wait", gate="late")
    yard.begun(late)
    configuration.write_text(f'url = "{next_yard.workers_url}"\n')
    fleet.send(signal.SIGHUP)
    crew = fleet.crew(4)
    yard.open_gate("late")
    until(lambda: not any(map(alive, old)), "the end of the old workers")
    new = {worker for pid, worker in crew.items() if pid not in old}

    assert (yard.settled(late).state, yard.job(late).history) == (State.COMPLETED, ())
    assert {each.info.id for each in next_yard.workers() if each.alive} == new
    assert not [each for each in yard.workers() if each.alive]
    next_yard.seasoned(*new)
    held = next_yard.settled(next_yard.enqueue("hold_interpreter", seconds=int(2 * LEASE)))
    assert (held.state, held.history) == (State.COMPLETED, ())
    assert not fleet.events("lease.lost")


# -- their number ------------------------------------------------------------------------------

BRISK = """
from windlass.core.autoscale import Pauses
from windlass.supervisor.process_scaler import ProcessScaler
ProcessScaler.__init__.__kwdefaults__["pauses"] = Pauses(look=0.25, rise=0.5, relief=0.5, fall=2)
"""
"""Makes a supervisor consider in seconds what takes a minute otherwise."""


def test_a_fleet_has_as_many_processes_as_its_load_wants(yard: Yard) -> None:
    """Prevents `--processes 1..3` from being read, and nothing more."""
    fleet = yard.fleet("--processes=1..3", before=BRISK, concurrency="2", shutdown_timeout="5s")
    fleet.crew(1)
    jobs = yard.enqueue_many("wait", 6, gate="peak")
    pids = {yard.begun(job) for job in jobs}
    assert len(pids) == 3
    yard.open_gate("peak")
    done = [yard.settled(job) for job in jobs]
    until(lambda: sum(map(alive, pids)) == 1, "a fleet that shrinks again")

    assert {(job.state, job.history) for job in done} == {(State.COMPLETED, ())}
    scaled = [(event["from"], event["to"]) for event in fleet.events("processes.scaled")]
    assert scaled[:2] == [(1, 2), (2, 3)]
    assert scaled[-1][1] == 1
    assert all(event["reason"] for event in fleet.events("processes.scaled"))
    gone = until(
        lambda: len(found := fleet.events("process.ended")) == 2 and found, "the word of their end"
    )
    assert {(event["why"], event["how"]) for event in gone or ()} == {
        ("scaled down", "exited with code 0")
    }
    assert yard.settled(yard.enqueue("quick")).state is State.COMPLETED
    assert len(fleet.events("worker.started")) == 3


# -- their deaths ------------------------------------------------------------------------------

DEATHS = 5


@on_sqlite
def test_workers_that_die_one_after_the_other_are_called_a_crash_loop(yard: Yard) -> None:
    """Prevents a fleet that does nothing but restart, and says nothing but that."""
    fleet = yard.fleet()
    for deaths in range(1, DEATHS + 1):
        assert not fleet.events("supervisor.crash_loop")
        os.kill(list(fleet.crew(deaths))[-1], signal.SIGKILL)
        until(lambda: len(fleet.events("process.ended")) == deaths, "the word of a death")  # noqa: B023
    told = fleet.event("supervisor.crash_loop")
    fleet.crew(DEATHS + 1)

    assert (told["deaths"], told["level"]) == (DEATHS, "error")
    assert "process.ended" in told["remedy"]
    assert yard.settled(yard.enqueue("quick")).state is State.COMPLETED
    began = [_at(event) for event in fleet.events("worker.started")]
    ended = [_at(event) for event in fleet.events("process.ended")]
    pauses = [after - before for before, after in zip(ended, began[1:], strict=True)]
    assert pauses[-1] > 1.6, "who dies again and again is not restarted at once"


def _at(event: dict[str, str]) -> float:
    return datetime.fromisoformat(event["timestamp"]).timestamp()


# -- their supervisor --------------------------------------------------------------------------

NARROW = """
import socket
made = socket.socketpair
def narrow():
    ends = made()
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    return ends
socket.socketpair = narrow
"""
"""Gives the lines to workers the smallest buffer there is: a few words, and not a minute's."""


def test_a_supervisor_that_stood_still_for_longer_than_its_buffers_hold_harms_nobody(
    yard: Yard,
) -> None:
    """Prevents a worker that waits for its supervisor to listen, or is cut off for not waiting."""
    fleet = yard.fleet("--processes=2", before=NARROW)
    crew = fleet.crew(2)
    running = yard.enqueue("wait", gate="awake")
    yard.begun(running)
    os.kill(fleet.pid, signal.SIGSTOP)
    over = time.monotonic() + 2 * LEASE
    done = 0
    while time.monotonic() < over:
        assert yard.settled(yard.enqueue("quick")).state is State.COMPLETED
        done += 1
    assert {each.info.id for each in yard.workers() if each.alive} == set(crew.values())
    os.kill(fleet.pid, signal.SIGCONT)
    yard.open_gate("awake")

    assert (yard.settled(running).state, yard.job(running).history) == (State.COMPLETED, ())
    # It hears and renews as before: nobody else can, while the interpreter is held.
    held = yard.settled(yard.enqueue("hold_interpreter", seconds=int(2 * LEASE)))
    assert (held.state, held.history) == (State.COMPLETED, ())
    until(lambda: _processed(yard) == done + 2, "a supervisor that is told what was done")
    for event in ("lease.lost", "job.rescued", "process.ended", "process.stuck"):
        assert not fleet.events(event), event
    fleet.send(signal.SIGTERM)
    assert fleet.ended() == 0


def _processed(yard: Yard) -> int:
    """Count what has been done, as the heartbeats tell it."""
    return sum(each.pulse.processed for each in yard.workers())
