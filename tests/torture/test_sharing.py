"""Many processes on one file: names, kinds, crowds, readers that overstay, and a full disk."""

from __future__ import annotations

import os
import resource
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import pytest

from tests.support.postgres_workers import SqliteYard, on_sqlite
from tests.support.worker_processes import PATIENCE, Yard, until
from windlass import State, StoreUnavailable


def test_two_workers_of_one_name_have_ids_of_their_own_and_both_work(yard: Yard) -> None:
    """Case 12. Prevents a copied configuration from making two workers fence each other out."""
    workers = [yard.worker(name="twin", concurrency=1), yard.worker(name="twin", concurrency=1)]
    ids = {worker.started() for worker in workers}
    assert len(ids) == 2

    jobs = [yard.enqueue("wait", gate="both") for _ in workers]
    pids = {yard.begun(job) for job in jobs}
    yard.open_gate("both")
    done = [yard.settled(job) for job in jobs]

    assert pids == {worker.pid for worker in workers}
    assert {job.worker for job in done} == ids
    live = [each for each in yard.workers() if each.alive]
    assert {each.info.id for each in live} == ids
    assert {each.info.name for each in live} == {"twin"}
    assert not [worker for worker in workers if worker.events("lease.lost")]


def test_a_kind_that_a_worker_does_not_know_waits_for_one_that_does(yard: Yard) -> None:
    """Case 18. Prevents a rolling deployment from burning, or hiding, the jobs of new code."""
    job = yard.enqueue("foreign")
    behind = yard.enqueue("quick")
    ignorant = yard.worker()
    ignorant.started()
    unserved = ignorant.event("kind.unserved", kind="foreign")
    assert "handler" in unserved["remedy"]
    assert yard.settled(behind).state is State.COMPLETED
    waiting = yard.job(job)
    assert (waiting.state, waiting.attempt) == (State.PENDING, 0)

    knowing = yard.worker(app="stranger")
    knowing_id = knowing.started()
    done = yard.settled(job)
    assert (done.state, done.worker, done.attempt) == (State.COMPLETED, knowing_id, 1)
    assert not knowing.events("kind.unserved")


CROWD = 20
EACH = 25


@pytest.mark.long
@on_sqlite
def test_a_crowd_of_processes_shares_one_file_without_a_locked_database(yard: SqliteYard) -> None:
    """Case 43. Prevents "database is locked" from reaching a user, and any job a second claim."""
    crowd, output = yard.python("crowd.py", str(CROWD), str(EACH))
    assert crowd.wait(2 * PATIENCE) == 0, output.read_text()[-3_000:]

    assert "locked" not in output.read_text()
    runs = Counter(entry.job for entry in yard.ledger.entries("run"))
    accepted = {entry.job for entry in yard.ledger.entries("enqueued")}
    assert len(accepted) == CROWD * EACH
    assert runs == dict.fromkeys(accepted, 1)
    assert yard.states() == {State.COMPLETED: CROWD * EACH}
    assert len({entry.pid for entry in yard.ledger.entries("enqueued")}) == CROWD


WAL_LARGE = 1_000_000
PATCHES = {"windlass.store.sqlite.findings:_LARGE_WAL_BYTES": WAL_LARGE}


@pytest.mark.long
@on_sqlite
def test_a_reader_that_overstays_is_reported_before_its_log_fills_the_disk(
    yard: SqliteYard,
) -> None:
    """Case 44. Prevents a forgotten database shell from filling the disk without a word."""
    yard.enqueue("take", number=0)
    with yard.raw() as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM jobs").fetchone()
        until(lambda: _grow(yard) > WAL_LARGE, "a large write-ahead log")
        worker = yard.worker(patches=PATCHES, app="stranger")
        finding = worker.event("store.finding")
        reader.execute("COMMIT")

    assert "write-ahead log" in finding["problem"]
    assert "read transaction" in finding["remedy"]
    yard.enqueue_many("take", 10, number=1)
    _checkpoint(yard)
    fresh = yard.worker(patches=PATCHES, app="stranger")
    fresh.event("kind.unserved")
    assert not fresh.events("store.finding")


def _grow(yard: SqliteYard) -> int:
    """Write, and return the size of the write-ahead log."""
    yard.enqueue_many("take", 500, number=1)
    return yard.file.with_name("jobs.db-wal").stat().st_size


def _checkpoint(yard: SqliteYard) -> None:
    """Empty the write-ahead log, as nobody holds it any more."""

    def empties() -> bool:
        with yard.raw() as db:
            busy, _, _ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not busy

    until(empties, "an empty write-ahead log")


@pytest.mark.long
@on_sqlite
def test_the_file_is_sound_after_workers_were_killed_while_they_wrote(yard: SqliteYard) -> None:
    """Case 1 for the file itself. Prevents a kill in the middle of a write from damaging it."""
    for _ in range(3):
        # Work for each worker, however much the one before it has done on a fast machine.
        yard.enqueue_many("quick", 200, pause=0.05)
        done = len(yard.ledger.entries("end"))
        worker = yard.worker()
        until(lambda: len(yard.ledger.entries("end")) > done + 20, "some work")  # noqa: B023
        worker.kill()
    with yard.raw() as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert db.execute("SELECT count(*) FROM jobs").fetchone() == (600,)


ROOM = 300_000


@contextmanager
def full_disk(yard: SqliteYard, *processes: int) -> Iterator[None]:
    """Have the kernel refuse these processes, soon, to make any file longer (RLIMIT_FSIZE)."""
    longest = max(each.stat().st_size for each in yard.directory.iterdir())
    before = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in processes}
    for pid, (_, hard) in before.items():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (longest + ROOM, hard))
    try:
        yield
    finally:
        for pid, limits in before.items():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)


@on_sqlite
def test_a_full_disk_is_an_error_that_passes_and_no_job_is_lost_or_made_up(
    yard: SqliteYard,
) -> None:
    """Case 31. Prevents a job that was accepted, or acknowledged, without being on the disk."""
    worker = yard.worker(lease="60s", concurrency=1)
    held = yard.enqueue("wait", gate="room")
    yard.begun(held)
    accepted: list[UUID] = []
    with full_disk(yard, os.getpid(), worker.pid):
        with pytest.raises(StoreUnavailable, match="disk"):
            while True:
                accepted.append(yard.enqueue("quick"))
        yard.open_gate("room")
        worker.event("service.failed", service="completer")
        with pytest.raises(StoreUnavailable, match="disk"):
            yard.enqueue("quick")
        assert yard.states() == {State.RUNNING: 1, State.PENDING: len(accepted)}

    done = [yard.settled(job) for job in [held, *accepted]]
    assert {(job.state, job.attempt) for job in done} == {(State.COMPLETED, 1)}
    assert yard.states() == {State.COMPLETED: 1 + len(accepted)}
    assert worker.is_running()
    with yard.raw() as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
