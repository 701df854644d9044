"""Circuit breakers under crashes: what a dead worker held comes back, and nothing more."""

from __future__ import annotations

import pytest

from tests.support.worker_processes import Yard, until
from windlass import State
from windlass.core.policies.breaker_record import BreakerState, BreakerStatus

pytestmark = pytest.mark.long


def gateway(yard: Yard) -> BreakerStatus | None:
    known = yard.call(yard.app.control.abreakers())
    return next((each for each in known if each.name == "gateway"), None)


def changes(yard: Yard) -> int:
    known = gateway(yard)
    return 0 if known is None else known.changes


def is_in(yard: Yard, state: BreakerState) -> bool:
    known = gateway(yard)
    return known is not None and known.state is state


def test_the_probe_of_a_worker_that_was_killed_comes_back_with_its_lease(yard: Yard) -> None:
    """Prevents a breaker that stays half-open for ever, because its only probe died."""
    workers = {worker.pid: worker for worker in (yard.worker(app="guarded") for _ in range(2))}
    ids = {pid: worker.started() for pid, worker in workers.items()}
    yard.seasoned(*ids.values())
    jobs = yard.enqueue_many("call_gateway", 6)
    for worker in workers.values():
        worker.event("breaker.opened")
    # A claim that was under way when it opened is over by the time that a probe has failed.
    until(lambda: changes(yard) >= 3, "a probe that failed")
    yard.open_gate("up")
    (probe,) = until(lambda: yard.ledger.entries("start"), "a probe")
    held = gateway(yard)
    assert held is not None
    assert held.probes == {ids[probe.pid]: 1}

    workers[probe.pid].kill()
    until(lambda: len(yard.ledger.entries("start")) == 2, "another probe")
    assert yard._ended(ids[probe.pid]), "not before the lease had ended"
    yard.open_gate("swift")
    settled = [yard.settled(job) for job in jobs]

    assert {(job.state, job.crashes) for job in settled} == {(State.COMPLETED, 0)}
    until(lambda: is_in(yard, BreakerState.CLOSED), "a closed breaker")
    (other,) = [worker for pid, worker in workers.items() if pid != probe.pid]
    assert other.event("breaker.closed")["reason"] == "a probe succeeded"
    ends = yard.ledger.entries("end")
    assert len(ends) == len(jobs)
    begun_before_the_end = [
        entry for entry in yard.ledger.entries("start") if entry.at < ends[0].at
    ]
    assert len(begun_before_the_end) == 2, "the probe that was lost, and the one after it"
