"""Limits over three processes, of which one is killed: what handlers did says whether they held."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest

from tests.support.ledger import Entry
from tests.support.worker_processes import LEASE, WorkerProcess, Yard, until
from windlass import Kind, State

pytestmark = pytest.mark.long

LIMIT = 4
"""Of the kind `limited`."""
RATE = 30
"""Starts a second of the kind `paced`."""


def crew(yard: Yard) -> list[WorkerProcess]:
    """Start three workers that may rescue each other's jobs."""
    workers = [yard.worker(concurrency=10) for _ in range(3)]
    yard.seasoned(*[worker.started() for worker in workers])
    return workers


def kill_one_that_runs(yard: Yard, workers: Sequence[WorkerProcess], limit: int) -> float:
    """Kill a worker while it has jobs, and return when."""

    def find() -> WorkerProcess | None:
        running = at_work(yard.ledger.entries())
        busy = [worker for worker in workers if worker.pid in running.values()]
        return busy[0] if len(running) == limit and busy else None

    victim = until(find, "a worker at work")
    assert victim is not None
    victim.kill()
    return max(each.at for each in yard.ledger.entries() if each.pid == victim.pid)


def at_work(entries: Sequence[Entry]) -> dict[tuple[str, int], int]:
    """Return the runs that have not ended, each with its process."""
    running: dict[tuple[str, int], int] = {}
    for entry in entries:
        if entry.what == "start":
            running[entry.job, entry.attempt] = entry.pid
        else:
            running.pop((entry.job, entry.attempt), None)
    return running


def test_a_concurrency_limit_holds_though_a_worker_is_killed(yard: Yard) -> None:
    """Case 42. Prevents slots that a dead worker keeps, and more jobs at a time than allowed."""
    workers = crew(yard)
    yard.enqueue_many("limited", 150)
    died = kill_one_that_runs(yard, workers, LIMIT)
    until(lambda: yard.states() == {State.COMPLETED: 150}, "the end of all jobs", 3 * LEASE + 30)

    entries = yard.ledger.entries()
    lost = at_work(entries)
    assert lost, "it was killed at work"
    running: set[tuple[str, int]] = set()
    most = 0
    for entry in entries:
        run = (entry.job, entry.attempt)
        if entry.what == "end":
            running.discard(run)
            continue
        # What a killed process ran ended with it.
        living = {each for each in running if each not in lost or entry.at <= died}
        running.add(run)
        most = max(most, len(living | {run}))
    assert most == LIMIT


def test_a_rate_limit_holds_though_a_worker_is_killed(yard: Yard) -> None:
    """Case 42. Prevents tokens that are lost with a worker, and more starts than allowed."""
    workers = crew(yard)
    yard.enqueue_many("paced", 150)
    until(lambda: len(yard.ledger.entries("start")) >= RATE, "the first second's worth")
    first = yard.ledger.entries("start")[0].pid
    next(worker for worker in workers if worker.pid == first).kill()
    until(lambda: yard.states() == {State.COMPLETED: 150}, "the end of all jobs", 3 * LEASE + 40)

    starts = sorted(entry.at for entry in yard.ledger.entries("start"))
    # The ledger has the time of the write, which is a little after the start.
    for number, at in enumerate(starts[:-RATE]):
        assert starts[number + RATE] - at > 0.98, f"{RATE + 1} starts within a second"


def test_the_order_of_a_key_holds_though_a_worker_is_killed(yard: Yard) -> None:
    """Case 42. Prevents a job from overtaking one that fails, or one that a dead worker had."""
    workers = crew(yard)
    kind = yard.app.producer(Kind("in_order", dict[str, object], key="account"))
    ids: dict[str, list[UUID]] = {"x": [], "y": [], "z": []}
    for number in range(12):
        for account, known in ids.items():
            payload: dict[str, object] = {"account": account, "fails": number % 4 == 1}
            known.append(kind.using(key=account).enqueue(payload).id)
    until(lambda: len(yard.ledger.entries()) > 20, "some work")
    workers[0].kill()
    until(lambda: yard.states() == {State.COMPLETED: 36}, "the end of all jobs", 6 * LEASE + 40)

    for account, known in ids.items():
        order: list[str] = []
        for entry in yard.ledger.entries(f"start {account}"):
            if not order or order[-1] != entry.job:
                order.append(entry.job)
        assert order == [str(each) for each in known], f"the order of {account}"
