"""Unique keys when many want one at the same moment, and when their holder's worker dies."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest

from tests.support.worker_processes import PATIENCE, Yard
from windlass import State, Unique
from windlass.core.jobs.queries import JobFilter

_ALL = JobFilter()


def produce(yard: Yard, processes: int, on_duplicate: str) -> None:
    """Let so many processes enqueue under one key at once."""
    crowd, output = yard.python("unique_producers.py", str(processes), on_duplicate)
    assert crowd.wait(2 * PATIENCE) == 0, output.read_text()


@pytest.mark.long
def test_fifty_processes_that_enqueue_the_same_at_once_add_one_job(yard: Yard) -> None:
    """Prevents the second job that slips in between a look at the key and its taking."""
    produce(yard, 50, "keep")
    (added,) = yard.ledger.entries("added")
    assert {entry.job for entry in yard.ledger.entries()} == {added.job}
    assert len(yard.ledger.entries("existing")) == 49
    assert sum(yard.states().values()) == 1


@pytest.mark.long
def test_twenty_processes_that_debounce_leave_one_job_that_is_due_last(yard: Yard) -> None:
    """Prevents a push that is lost, since two producers read the same due time."""
    produce(yard, 20, "supersede")
    (added,) = yard.ledger.entries("added")
    assert len(yard.ledger.entries("existing")) == 19
    (job,) = yard.call(yard.app.store.find(_ALL, limit=10)).jobs
    assert (str(job.id), job.state) == (added.job, State.SCHEDULED)
    after = job.due_at - job.created_at
    assert timedelta(minutes=80) <= after < timedelta(minutes=81), "that of the last one"


@pytest.mark.long
def test_fifty_threads_that_enqueue_and_replace_while_workers_claim_lose_no_change(
    yard: Yard,
) -> None:
    """Prevents the payload that goes to a job which was claimed at that moment, and is never run.

    The key is held until its job is claimed: what comes later is a job of its own, so whatever was
    written last is run last.
    """
    worker = yard.worker()
    worker.started()
    producer = yard.producer("quick", unique=Unique("k", on_duplicate="replace"))
    gate = Barrier(50)

    def write(number: int) -> None:
        gate.wait(PATIENCE)
        for turn in range(4):
            handle = producer.enqueue({"pause": 0.0})
            yard.ledger.write("told", handle.id, 10 * number + turn)

    with ThreadPoolExecutor(50) as threads:
        list(threads.map(write, range(50)))
    jobs = {entry.job for entry in yard.ledger.entries("told")}
    last = producer.enqueue({"pause": 0.001})
    done = yard.settled(last.id)
    assert (done.state, done.payload.replace(b" ", b"")) == (State.COMPLETED, b'{"pause":0.001}')
    runs = [entry.job for entry in yard.ledger.entries("start")]
    assert set(runs) == jobs | {str(last.id)}, "every job that a producer was told of has run"
    assert len(runs) == len(set(runs))


@pytest.mark.long
def test_a_key_whose_worker_died_is_freed_with_what_becomes_of_its_job(yard: Yard) -> None:
    """Case 42. Prevents a key that nobody can have any more, since its holder is gone for ever."""
    once = yard.producer("wait", unique="settled")
    waiting = yard.producer("wait", unique=Unique("claimed", until="claimed"))
    gate = {"gate": "never", "attempts": 1}
    worker = yard.worker()
    first, second = once.enqueue(gate), waiting.enqueue(gate)
    yard.begun(first.id)
    yard.begun(second.id)
    worker.kill()
    assert once.enqueue(gate).id == first.id, "held: the job is to run again"
    third = waiting.enqueue({"gate": "open"})
    assert not third.is_duplicate, "it was free from the claim on"

    yard.open_gate("open")
    yard.worker().started()
    done = yard.settled(first.id)
    assert (done.state, done.attempt) == (State.COMPLETED, 2)
    again = once.enqueue({"gate": "open"})
    assert not again.is_duplicate
    for handle in (second, third, again):
        assert yard.settled(handle.id).state is State.COMPLETED
