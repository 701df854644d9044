"""The supervisor has a connection of its own: it survives what the connections of workers do.

In each test a handler holds the interpreter of its worker for two leases, so that nobody but the
supervisor can renew; another worker is ready to rescue the job as soon as nobody does.
"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.support.network_proxy import Proxy
from tests.support.postgres_workers import PostgresYard
from tests.support.worker_processes import LEASE, WorkerProcess, until
from tests.torture.test_postgres_connections import IMPATIENT, set_read_only
from tests.torture.test_postgres_contention import idle_in_transactions
from tests.torture.test_postgres_crashes import EFFECTS
from windlass import State, Windlass
from windlass.core.workers import WorkerInfo, WorkerPulse

pytestmark = pytest.mark.long


def held_fleet(
    yard: PostgresYard, *, lease: float = LEASE, **options: Any
) -> tuple[WorkerProcess, UUID, str]:
    """Start a fleet of two, and return it with a job that only the supervisor can keep alive."""
    fleet = yard.fleet("--processes=2", lease=f"{lease}s", **options)
    crew = fleet.crew(2)
    yard.seasoned(*crew.values())
    job = yard.enqueue("hold_interpreter", seconds=int(2 * lease))
    return fleet, job, crew[yard.begun(job)]


def assert_kept(yard: PostgresYard, fleet: WorkerProcess, job: UUID) -> None:
    """Assert that the job was done by whoever began with it, and its lease never in doubt."""
    done = yard.settled(job)
    assert (done.state, done.crashes, done.history) == (State.COMPLETED, 0, ())
    assert len(yard.ledger.entries("start", job)) == 1
    assert not fleet.events("lease.lost")
    assert not fleet.events("job.rescued")


def failed_beats(fleet: WorkerProcess, worker: str, word: str = "") -> list[dict[str, Any]]:
    failed = fleet.events("heartbeat.failed", worker_id=worker, logger="windlass.supervisor")
    return [event for event in failed if word in event["error"]]


def test_backends_that_are_terminated_again_and_again_cost_no_lease(
    postgres_yard: PostgresYard,
) -> None:
    """Case 20. Prevents a supervisor whose own connection, once gone, costs all its workers."""
    yard = postgres_yard
    fleet, job, _ = held_fleet(yard)
    others: list[UUID] = []
    while not yard.ledger.entries("end", job):
        others += yard.enqueue_many("quick", 20)
        yard.hang_up()
        calm = time.monotonic() + 0.4
        until(lambda: time.monotonic() > calm, "the next storm")  # noqa: B023

    assert_kept(yard, fleet, job)
    until(lambda: yard.states() == {State.COMPLETED: len(others) + 1}, "every accepted job")


def test_a_renewal_by_a_connection_that_has_died_is_made_by_the_next_one(
    postgres_yard: PostgresYard,
) -> None:
    """Case 20. Prevents one of two workers from always finding the connection dead.

    The other one, whose lease is renewed right after, would always find the one that is new.
    """
    yard = postgres_yard
    app = Windlass(yard.plain_url, listen_url="off")
    runner = asyncio.Runner()
    runner.run(app.store.register(INFO))
    for _ in range(3):
        assert app.store.heartbeat(INFO.id, WorkerPulse(), INFO.lease)
        assert yard.hang_up() > 0
    runner.run(app.aclose())
    runner.close()


INFO = WorkerInfo(
    id="far", name="far", host="far", pid=1, release="1", lease=timedelta(minutes=1), slots=1
)


def test_a_supervisor_whose_connection_is_black_holed_renews_by_a_new_one(
    far_yard: PostgresYard, proxy: Proxy
) -> None:
    """Case 22. Prevents a supervisor that waits for an answer until every lease has run out."""
    yard = far_yard
    # Two leases wait for an answer one after the other, each for a third of its time.
    fleet, job, worker = held_fleet(yard, lease=3 * LEASE, patches=IMPATIENT)
    proxy.black_hole()
    until(lambda: failed_beats(fleet, worker), "a supervisor that notices")
    proxy.passing()

    assert_kept(yard, fleet, job)
    assert yard.settled(yard.enqueue("quick")).state is State.COMPLETED


def test_a_fleet_that_hears_nothing_polls_and_its_supervisor_says_so(
    postgres_yard: PostgresYard, proxy: Proxy
) -> None:
    """Case 23. Prevents a metric that tells of the supervisor's ears, which it does not have."""
    yard = postgres_yard
    ears = {"WINDLASS_LISTEN_URL": proxy.url(yard.plain_url)}
    fleet = yard.fleet("--processes=2", environ=ears)
    crew = set(fleet.crew(2).values())
    until(lambda: _listening(yard) == dict.fromkeys(crew, True), "workers that listen")
    proxy.refuse()
    proxy.reset()
    until(lambda: _listening(yard) == dict.fromkeys(crew, False), "workers that are deaf")
    assert yard.settled(yard.enqueue("quick")).state is State.COMPLETED
    proxy.accept()
    until(lambda: _listening(yard) == dict.fromkeys(crew, True), "workers that listen again")
    assert not fleet.events("lease.lost")


def _listening(yard: PostgresYard) -> dict[str, bool]:
    return {each.info.id: each.pulse.listening for each in yard.workers()}


def test_a_supervisor_whose_server_turned_read_only_renews_once_it_may_write(
    postgres_yard: PostgresYard,
) -> None:
    """Case 26. Prevents a supervisor that keeps a connection by which nothing can be renewed."""
    yard = postgres_yard
    fleet, job, worker = held_fleet(yard)
    set_read_only(yard, "on")
    yard.hang_up()
    until(lambda: failed_beats(fleet, worker, "read-only"), "a renewal that is refused")
    set_read_only(yard, "off")

    assert_kept(yard, fleet, job)
    assert yard.settled(yard.enqueue("quick")).state is State.COMPLETED


def test_handlers_that_hold_every_connection_keep_no_supervisor_from_renewing(
    postgres_yard: PostgresYard,
) -> None:
    """Case 27. Prevents user code from using up the connection by which leases are kept."""
    yard = postgres_yard
    yard.ask(EFFECTS)
    pool = {"WINDLASS_POOL_SIZE": "1", "WINDLASS_POOL_OVERFLOW": "1"}
    fleet = yard.fleet(environ=pool)
    rival = yard.worker(app="stranger")
    ((_, worker),) = fleet.crew(1).items()
    yard.seasoned(rival.started(), worker)
    holders = [
        yard.enqueue(kind, gate="all", attempts=9)
        for kind in ("transact", "transact", "transact_in_thread", "transact_in_thread")
    ]
    for each in holders:
        until(lambda: yard.ledger.entries("inside", each), f"{each} inside")  # noqa: B023
    assert idle_in_transactions(yard) == 4
    seen = _last_seen(yard, worker)
    job = yard.enqueue("hold_interpreter", seconds=int(2 * LEASE))
    yard.begun(job)
    until(lambda: _last_seen(yard, worker) - seen > timedelta(seconds=LEASE), "a renewed lease")
    yard.open_gate("all")

    assert_kept(yard, fleet, job)
    assert not rival.events("job.rescued")
    done = [yard.settled(each) for each in holders]
    assert {(each.state, each.history) for each in done} == {(State.COMPLETED, ())}


def _last_seen(yard: PostgresYard, worker: str) -> Any:
    (seen,) = [each.last_seen for each in yard.workers() if each.info.id == worker]
    return seen
