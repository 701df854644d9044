"""Bulk operations whose workers are killed or stand still: no job is left out or moved twice."""

from __future__ import annotations

import signal

import pytest

from tests.support.postgres_workers import PostgresYard
from tests.support.worker_processes import WorkerProcess, Yard, until
from windlass import State
from windlass.core.jobs.bulk import BulkOperation, BulkState

pytestmark = pytest.mark.long
JOBS = 400
SMALL_STEPS = {"windlass.core.jobs.bulk:STEP": 2}
IDLE = {"queues": "nothing", "patches": SMALL_STEPS}
"""A worker that serves none of the jobs, and carries on an operation in many steps."""


def under_way(yard: Yard) -> tuple[WorkerProcess, BulkOperation]:
    """Start a worker, and let it carry on an operation until it has come some way."""
    worker = yard.worker(**IDLE)  # type: ignore[arg-type]
    worker.started()
    yard.enqueue_many("quick", JOBS)
    operation = yard.call(yard.app.control.astart_bulk("cancel", kind="quick"))
    until(lambda: moved(yard, operation).moved >= 20, "some steps")
    return worker, operation


def moved(yard: Yard, operation: BulkOperation) -> BulkOperation:
    return yard.call(yard.app.control.abulk(operation.id))


def is_frozen_outside(yard: Yard, worker: WorkerProcess) -> bool:
    """Stop a worker; let it go on if it holds the lock of the operation's record."""
    yard.freeze(worker)
    if isinstance(yard, PostgresYard) and yard.ask(
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
        " AND pid <> pg_backend_pid() AND state IN ('active', 'idle in transaction')"
    ):
        worker.thaw()
        return False
    return True


def assert_all_moved_once(yard: Yard, operation: BulkOperation) -> None:
    until(lambda: moved(yard, operation).state is BulkState.COMPLETED, "the end of the operation")
    after = moved(yard, operation)
    assert (after.seen, after.moved, after.refused) == (JOBS, JOBS, 0)
    assert yard.states() == {State.CANCELLED: JOBS}
    (entry,) = yard.call(yard.app.control.aaudit()).entries
    assert entry.count == JOBS


def test_another_worker_carries_on_after_a_kill(yard: Yard) -> None:
    worker, operation = under_way(yard)
    worker.kill()
    left = moved(yard, operation)
    assert left.state is BulkState.RUNNING
    assert yard.states()[State.CANCELLED] == left.moved, "a step was counted and not made, or half"
    yard.worker(**IDLE).started()  # type: ignore[arg-type]
    assert_all_moved_once(yard, operation)


def test_a_worker_that_stood_still_moves_nothing_once_more(yard: Yard) -> None:
    worker, operation = under_way(yard)
    until(lambda: is_frozen_outside(yard, worker), "a moment at which it locks no record")
    yard.worker(**IDLE).started()  # type: ignore[arg-type]
    until(lambda: moved(yard, operation).state is BulkState.COMPLETED, "the end of the operation")
    worker.thaw()
    worker.event("lease.lost")
    assert_all_moved_once(yard, operation)


def test_a_worker_that_is_stopped_leaves_the_rest_to_another(yard: Yard) -> None:
    worker, operation = under_way(yard)
    worker.send(signal.SIGTERM)
    worker.ended()
    assert moved(yard, operation).held_until is None
    yard.worker(**IDLE).started()  # type: ignore[arg-type]
    assert_all_moved_once(yard, operation)
