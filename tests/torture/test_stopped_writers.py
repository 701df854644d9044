"""A process that is stopped while it has its turn to write: others read, say who it is, and end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.postgres_workers import SqliteYard
from tests.support.worker_processes import PATIENCE
from windlass import State

COMMANDS = ["workers", "queues list", "jobs list", "dead list", "stats", "schedules list"]
HOLD = """
import fcntl, os, signal, sqlite3, sys
turn = open(sys.argv[1] + "-turn", "r+")
fcntl.flock(turn, fcntl.LOCK_EX)
db = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
db.execute("BEGIN IMMEDIATE")
os.kill(os.getpid(), signal.SIGSTOP)
db.execute("ROLLBACK")
"""
IMPATIENT = {"windlass.store.sqlite.connections.file_access:_LOCK_TIMEOUT_SECONDS": 2.0}
"""Notices in two seconds what takes twenty otherwise."""


@contextmanager
def stopped_writer(yard: SqliteYard) -> Iterator[int]:
    """Have a process that has its turn to write and stands still; it goes on afterwards."""
    writer = subprocess.Popen([sys.executable, "-c", HOLD, str(yard.file)])
    try:
        _, status = os.waitpid(writer.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        yield writer.pid
        writer.send_signal(signal.SIGCONT)
        assert writer.wait(PATIENCE) == 0
    finally:
        writer.kill()
        writer.wait()


def test_looking_needs_no_turn(sqlite_yard: SqliteYard) -> None:
    """Prevents commands that hang just when somebody wants to know what is going on."""
    yard = sqlite_yard
    yard.enqueue("quick")
    with stopped_writer(yard) as pid:
        looks = [yard.run("-m", "windlass", *command.split()) for command in COMMANDS]
        doctor, said = yard.run("-m", "windlass", "doctor")
        for process, output in looks:
            assert process.wait(PATIENCE) == 0, output.read_text()
        assert doctor.wait(PATIENCE) == 1
        assert f"kill -CONT {pid}" in " ".join(said.read_text().split())


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_a_fleet_ends_although_it_can_write_nothing(sqlite_yard: SqliteYard, busy: bool) -> None:
    """Prevents a supervisor that has to be killed because some other process stands still."""
    yard = sqlite_yard
    fleet = yard.fleet("--shutdown-timeout=1s", patches=IMPATIENT)
    fleet.started()
    if busy:
        yard.begun(yard.enqueue("wait", gate="done"))
    with stopped_writer(yard):
        yard.open_gate("done")
        fleet.send(signal.SIGTERM)
        assert fleet.ended() == 0
    assert not fleet.events("worker.stuck")
    assert not fleet.events("process.stuck")
    assert len(fleet.events("outcomes.lost")) == busy


def test_the_log_names_the_process_that_holds_everybody_up(sqlite_yard: SqliteYard) -> None:
    yard = sqlite_yard
    fleet = yard.fleet(patches=IMPATIENT)
    fleet.started()
    with stopped_writer(yard) as pid:
        error = fleet.event("store.lost")["error"]
        assert f"process {pid} holds the write lock" in error
        assert f"kill -CONT {pid}" in error
    assert yard.settled(yard.enqueue("quick")).state is State.COMPLETED
    fleet.event("store.back")
