"""A whole fleet that stands still, or whose store is away: afterwards it goes on as it was."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import pytest

from tests.support.network_proxy import Proxy
from tests.support.postgres_workers import PostgresYard, SqliteYard
from tests.support.worker_processes import LEASE, WorkerProcess, Yard, until
from tests.torture.programs.families import descendants, is_stopped, signal_all
from windlass import State

PAUSE = 3 * LEASE
QUICK = 100
IMPATIENT = {"windlass.store.postgres.connections.dedicated:DedicatedConnection.run.timeout": LEASE}
"""Notices sooner that a connection is dead, so that the test does not wait for that."""


def busy_fleets(yard: Yard) -> tuple[list[WorkerProcess], list[UUID]]:
    """Start two supervisors with three workers, each of which may rescue, and give them jobs."""
    fleets = [yard.fleet("--processes=2", patches=IMPATIENT), yard.fleet(patches=IMPATIENT)]
    crews = [fleet.crew(count) for fleet, count in zip(fleets, (2, 1), strict=True)]
    jobs = yard.enqueue_many("wait", 9, gate="over")
    for job in jobs:
        yard.begun(job)
    yard.seasoned(*(worker for crew in crews for worker in crew.values()))
    return fleets, jobs


def assert_undisturbed(yard: Yard, fleets: list[WorkerProcess], jobs: list[UUID]) -> None:
    """Let the jobs end, and others run: each once, and nobody was robbed or charged."""
    before = {each.info.id for each in yard.workers()}
    yard.open_gate("over")
    jobs = [*jobs, *yard.enqueue_many("quick", QUICK)]
    done = [yard.settled(job) for job in jobs]
    # Whoever is going to rob a live worker does so once its own lease is old enough.
    after = time.monotonic() + 2 * LEASE
    until(lambda: time.monotonic() > after, "the right to rescue")

    told = {(job.state, job.failures, job.crashes, job.history) for job in done}
    assert told == {(State.COMPLETED, 0, 0, ())}
    starts = [entry.job for entry in yard.ledger.entries("start")]
    assert sorted(starts) == sorted(map(str, jobs)), "a job ran twice"
    for event in ("job.rescued", "job.suspected", "lease.lost", "process.ended"):
        assert not [line for fleet in fleets for line in fleet.events(event)], event
    assert {each.info.id for each in yard.workers() if each.alive} == before
    assert len(before) == 3
    assert yard.charged() == 0


@pytest.mark.long
@pytest.mark.parametrize("first", ["supervisor", "worker"])
def test_a_fleet_that_stood_still_robs_nobody_and_charges_nothing(yard: Yard, first: str) -> None:
    """Case 37. Prevents who wakes first from rescuing the jobs of all who have not woken yet.

    They have a whole lease for that, of which they need half here.
    """
    fleets, jobs = busy_fleets(yard)
    everybody = [pid for fleet in fleets for pid in (fleet.pid, *descendants(fleet.pid))]
    signal_all(everybody, signal.SIGSTOP)
    until(lambda: all(map(is_stopped, everybody)), "a fleet that stands still")
    _pass(PAUSE)
    leaders = {fleet.pid for fleet in fleets}
    early, *late = sorted(everybody, key=lambda pid: (pid in leaders) == (first == "worker"))
    signal_all([early], signal.SIGCONT)
    _pass(LEASE / 2)
    signal_all(late, signal.SIGCONT)

    assert_undisturbed(yard, fleets, jobs)


@pytest.mark.long
def test_a_fleet_whose_server_was_out_of_reach_robs_nobody_and_charges_nothing(
    far_yard: PostgresYard, proxy: Proxy
) -> None:
    """Case 37. Prevents the end of an outage from being the beginning of a stampede."""
    fleets, jobs = busy_fleets(far_yard)
    proxy.black_hole()
    _pass(PAUSE)
    proxy.passing()

    assert_undisturbed(far_yard, fleets, jobs)
    for fleet in fleets:
        assert fleet.events("heartbeat.failed"), "nobody noticed anything"


@pytest.mark.long
def test_a_fleet_whose_file_was_locked_robs_nobody_and_charges_nothing(
    sqlite_yard: SqliteYard,
) -> None:
    """Case 37, where the store is a file: somebody else writes to it for three leases."""
    fleets, jobs = busy_fleets(sqlite_yard)
    with _locked(sqlite_yard):
        _pass(PAUSE)

    assert_undisturbed(sqlite_yard, fleets, jobs)
    for fleet in fleets:
        assert fleet.events("heartbeat.failed"), "nobody noticed anything"


@contextmanager
def _locked(yard: SqliteYard) -> Iterator[None]:
    with yard.raw() as db:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("ROLLBACK")


def _pass(seconds: float) -> None:
    over = time.monotonic() + seconds
    until(lambda: time.monotonic() > over, f"{seconds} s", within=seconds + LEASE)
