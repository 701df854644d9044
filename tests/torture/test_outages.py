"""Stores that go away under whole fleets, and come back; fleets that start before their store."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.support.network_proxy import Proxy
from tests.support.postgres_workers import PostgresYard, SqliteYard
from tests.support.worker_processes import CALM, WorkerProcess, until
from windlass import State

LOUD = ("warning", "error", "critical")
MEANWHILE = ("lease.lost", "metrics.moved", "loop.stalled")
"""A lease may run out, other tests may have the port, and others may use the machine."""


def loud(fleet: WorkerProcess) -> list[dict[str, Any]]:
    """Return the lines that say that something is wrong."""
    return [line for line in fleet.events(None) if line["level"] in LOUD]


def cut(proxy: Proxy) -> None:
    """Let the server be away as one that was stopped: connections end, and new ones are refused."""
    proxy.refuse()
    proxy.reset()


def test_a_fleet_without_its_server_says_so_once_and_goes_on_when_it_is_back(
    far_yard: PostgresYard, proxy: Proxy
) -> None:
    """Prevents a log full of refused connections, and workers that idle beside a server."""
    yard = far_yard
    fleet = yard.fleet()
    fleet.started()
    assert yard.settled(yard.enqueue("quick")).state is State.COMPLETED

    cut(proxy)
    until(lambda: len(fleet.events("service.failed")) > 40, "many tries of many services")
    until(lambda: len(fleet.events("heartbeat.failed")) > 3, "tries of the supervisor")
    proxy.accept()
    assert yard.settled(yard.enqueue("quick")).state is State.COMPLETED
    until(lambda: len(fleet.events("store.back")) == 2, "the word of worker and supervisor")
    for event in ("store.lost", "store.back"):
        roles = {(line["role"], line["pid"]) for line in fleet.events(event)}
        assert {role for role, _ in roles} == {"worker", "supervisor"}
        assert len({pid for _, pid in roles}) == 2

    said = [line["event"] for line in loud(fleet)]
    assert [event for event in said if event not in MEANWHILE] == ["store.lost"] * 2
    assert not any("exception" in line for line in fleet.events(None))


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_a_fleet_ends_in_time_while_its_server_is_away(
    far_yard: PostgresYard, proxy: Proxy, busy: bool
) -> None:
    """Prevents a deploy that hangs on a server that is away, and an end that nobody can explain."""
    yard = far_yard
    fleet = yard.fleet("--shutdown-timeout=1s")
    fleet.started()
    job = yard.enqueue("wait", gate="done")
    if busy:
        yard.begun(job)
    proxy.black_hole()
    yard.open_gate("done")
    fleet.send(signal.SIGTERM)
    assert fleet.ended() == 0
    for line in fleet.events("shutdown.incomplete"):
        assert line["step"]
        assert line["error"]
        assert "TimeoutError" not in line["error"]


def test_a_file_that_somebody_locks_costs_no_outcome_and_two_lines(
    sqlite_yard: SqliteYard,
) -> None:
    """Prevents jobs that are run while nobody can write what came of them."""
    yard = sqlite_yard
    fleet = yard.fleet("--concurrency=2", lease="60s", patches=CALM)
    fleet.started()
    jobs = yard.enqueue_many("wait", 6, gate="done")
    until(lambda: len(yard.ledger.entries("start")) == 2, "two runs")
    with yard.raw() as db:
        db.execute("BEGIN IMMEDIATE")
        yard.open_gate("done")
        fleet.event("service.failed", service="completer")
        assert len(yard.ledger.entries("start")) == 2
        db.execute("ROLLBACK")
    done = [yard.settled(job) for job in jobs]
    assert {(job.state, job.attempt) for job in done} == {(State.COMPLETED, 1)}
    until(lambda: fleet.events("store.back"), "the end of the outage")
    assert "write lock" in fleet.event("store.lost")["error"]
