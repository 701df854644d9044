"""What comes in by odd ways: open, prepared and foreign transactions, megabytes, wrong clocks."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.support.postgres.server import FAST, Server
from tests.support.postgres_workers import PostgresYard
from tests.support.worker_processes import LEASE, NOISE, PATIENCE, until
from tests.torture.conftest import migrate
from windlass import Kind, State, StoreUnavailable, UnknownJob, Windlass

HOUR = 3600.0
GID = f"torture-{random.getrandbits(40)}"

# -- case 33 -----------------------------------------------------------------------------------


@contextmanager
def transaction(yard: PostgresYard) -> Iterator[psycopg.Connection[Any]]:
    """Give a user's own connection, in a transaction that the user ends."""
    with psycopg.connect(yard.plain_url, application_name="somebody") as conn:
        yield conn


def enqueue_in(yard: PostgresYard, conn: psycopg.Connection[Any]) -> UUID:
    return yard.producer("quick", tx=conn).enqueue({}).id


def is_known(yard: PostgresYard, job: UUID) -> bool:
    try:
        yard.job(job)
    except UnknownJob:
        return False
    return True


def overtake(yard: PostgresYard) -> None:
    """Let later jobs pass through the same lane, so that every floor is above the earlier one."""
    for job in yard.enqueue_many("quick", 25):
        yard.settled(job)


def test_a_job_of_an_open_transaction_runs_soon_after_its_commit_and_never_before(
    postgres_yard: PostgresYard,
) -> None:
    """Case 33. Prevents a job that is stranded below the floor, since others overtook it.

    One transaction stays open, one is prepared by a coordinator, one is another role's.
    """
    yard = postgres_yard
    yard.worker(poll_interval="500ms").started()
    with role(yard) as name, transaction(yard) as open_, transaction(yard) as theirs:
        theirs.execute(f'SET ROLE "{name}"'.encode())
        jobs = [enqueue_in(yard, open_), enqueue_in(yard, theirs), prepared(yard)]
        overtake(yard)
        assert [is_known(yard, job) for job in jobs] == [False] * 3

        open_.commit()
        theirs.commit()
        with yard.raw() as db:
            db.execute(f"COMMIT PREPARED '{GID}'".encode())
        done = [yard.settled(job, within=1 + NOISE) for job in jobs]

    assert [(job.state, job.attempt) for job in done] == [(State.COMPLETED, 1)] * 3
    started = [job.started_at for job in done]
    assert all(
        each is not None and each > job.created_at for each, job in zip(started, done, strict=True)
    )


def prepared(yard: PostgresYard) -> UUID:
    """Enqueue a job in a transaction that its coordinator prepares, and has still to commit."""
    with transaction(yard) as conn:
        conn.execute(b"SET LOCAL windlass.wake = off")
        job = enqueue_in(yard, conn)
        conn.execute(f"PREPARE TRANSACTION '{GID}'".encode())
        return job


@contextmanager
def role(yard: PostgresYard) -> Iterator[str]:
    """Make a role that may enqueue, and nothing else."""
    name = f"producer_{random.getrandbits(40)}"
    with yard.raw() as db:
        for sql in (
            f'CREATE ROLE "{name}"',
            f'GRANT USAGE ON SCHEMA windlass TO "{name}"',
            f'GRANT EXECUTE ON FUNCTION windlass.enqueue_many(json) TO "{name}"',
        ):
            db.execute(sql.encode())
        try:
            yield name
        finally:
            db.execute(f'DROP OWNED BY "{name}"'.encode())
            db.execute(f'DROP ROLE "{name}"'.encode())


def test_a_rollback_leaves_no_job_and_wakes_no_worker(postgres_yard: PostgresYard) -> None:
    """Case 33. Prevents jobs, and wake-ups, of transactions that never happened."""
    yard = postgres_yard
    worker = yard.worker(poll_interval="300s")
    worker.started()
    until(lambda: yard.value("SELECT count(*) FROM sleepers"), "a worker that sleeps")

    with yard.raw() as ear, transaction(yard) as conn:
        ear.execute("LISTEN windlass_jobs")
        job = enqueue_in(yard, conn)
        conn.rollback()
        conn.execute("NOTIFY windlass_jobs, 'rolled back'")
        conn.commit()
        assert heard_until(ear, "rolled back") == []
        assert not is_known(yard, job)

        taken = enqueue_in(yard, conn)
        conn.commit()
        conn.execute("NOTIFY windlass_jobs, 'committed'")
        conn.commit()
        assert len(heard_until(ear, "committed")) == 1
    assert yard.settled(taken).state is State.COMPLETED
    assert len(yard.ledger.entries("start")) == 1


def heard_until(ear: psycopg.Connection[Any], last: str) -> list[str]:
    """Return who was woken before a word was heard."""
    woken: list[str] = []
    for notice in ear.notifies(timeout=PATIENCE):
        if notice.payload == last:
            return woken
        if not notice.payload.startswith("probe "):
            woken.append(notice.payload)
    raise AssertionError(f"never heard {last!r}")


# -- case 24 -----------------------------------------------------------------------------------


def test_without_notifications_workers_poll(postgres_yard: PostgresYard) -> None:
    """Case 24. Prevents a queue that stands where nobody listens, as behind some poolers."""
    yard = postgres_yard
    yard.worker(poll_interval="300ms", environ={"WINDLASS_LISTEN_URL": "off"}).started()
    for _ in range(2):
        assert yard.settled(yard.enqueue("quick")).state is State.COMPLETED
    assert yard.value("SELECT count(*) FROM sleepers") == 0
    assert not any(
        each.pulse.listening for each in yard.workers() if each.last_seen > each.started_at
    )


PAGES = 64
"""The smallest queue of notifications that a server can have, in pages of 8 kB."""


@pytest.fixture
def clogged_yard(tmp_path: Path) -> Iterator[PostgresYard]:
    """Give a yard on a server whose queue of notifications is soon full."""
    with Server(settings={**FAST, "max_notify_queue_pages": PAGES}) as server:
        url = server.create_database("clogged")
        migrate(url)
        with closing(PostgresYard(tmp_path, url)) as yard:
            yield yard


@contextmanager
def clogged(yard: PostgresYard) -> Iterator[None]:
    """Fill the queue of notifications, as a listener does that stands still in a transaction."""
    with psycopg.connect(yard.url, autocommit=True) as deaf, yard.raw() as db:
        deaf.execute("LISTEN clog")
        deaf.execute("BEGIN")
        deaf.execute("SELECT 1")
        with pytest.raises(psycopg.errors.ProgramLimitExceeded):
            for number in range(4 * PAGES):
                db.execute("SELECT pg_notify('clog', %s)", [f"{number:07900}"])
        yield


@pytest.mark.long
def test_where_no_sleeper_can_be_notified_it_finds_its_jobs_by_polling(
    clogged_yard: PostgresYard,
) -> None:
    """Case 24. Prevents a lost job, and a queue that stands, where somebody wants to notify.

    NOTIFY takes its transaction with it. Who enqueues is told so, and can do without wake-ups.
    """
    yard = clogged_yard
    worker = yard.worker(poll_interval="300ms")
    worker.started()
    loud = Windlass(yard.plain_url, enqueue_timeout="1s")
    quiet = Windlass(f"{yard.plain_url}?options=-cwindlass.wake%3Doff")
    # A worker sleeps only after it has heard a notification of its own.
    until(lambda: yard.value("SELECT count(*) FROM sleepers"), "a worker that sleeps")
    with clogged(yard):
        with pytest.raises(StoreUnavailable, match="too many notifications in the NOTIFY queue"):
            enqueue_by(loud)
        assert yard.states() == {}
        until(lambda: yard.value("SELECT count(*) FROM sleepers"), "a worker that sleeps still")
        assert yard.settled(enqueue_by(quiet)).state is State.COMPLETED
        assert worker.is_running()
    loud.close()
    quiet.close()


def enqueue_by(app: Windlass) -> UUID:
    return app.producer(Kind("quick", dict[str, Any])).enqueue({}).id


# -- case 32 -----------------------------------------------------------------------------------


@pytest.mark.long
def test_workers_whose_clocks_are_an_hour_off_keep_leases_and_due_times(
    postgres_yard: PostgresYard,
) -> None:
    """Case 32. Prevents jobs that start an hour early, or late, or are taken from the living."""
    yard = postgres_yard
    ahead, behind = (
        yard.worker(clock=HOUR, queues="ahead"),
        yard.worker(clock=-HOUR, queues="behind"),
    )
    for worker, off in ((ahead, HOUR), (behind, -HOUR)):
        logged = datetime.fromisoformat(worker.event("worker.started")["timestamp"])
        assert abs((logged - datetime.now(UTC)).total_seconds() - off) < 600
    held, soon, later = [], [], []
    for queue in ("ahead", "behind"):
        held.append(yard.producer("wait", queue=queue).enqueue({"gate": "clocks"}).id)
        soon.append(yard.producer("quick", queue=queue, delay="1s").enqueue({}).id)
        later.append(yard.producer("quick", queue=queue, delay="59m").enqueue({}).id)
    ids = [each.info.id for each in yard.workers()]
    for job in held:
        yard.begun(job)
    yard.seasoned(*ids)
    began = max(each.last_seen for each in yard.workers())
    until(lambda: _all_seen(yard) - began > timedelta(seconds=1.5 * LEASE), "more than a lease")
    yard.open_gate("clocks")

    for done in map(yard.settled, [*soon, *held]):
        assert (done.state, done.attempt, done.crashes) == (State.COMPLETED, 1, 0)
        assert done.started_at is not None
        assert timedelta(0) <= done.started_at - done.due_at < timedelta(seconds=NOISE)
    assert {yard.job(job).state for job in later} == {State.SCHEDULED}
    assert {each.info.id for each in yard.workers() if each.alive} == set(ids)
    for each in yard.workers():
        off = HOUR if each.info.queues == ("ahead",) else -HOUR
        assert abs(each.pulse.clock_ahead.total_seconds() - off) < NOISE, "the doctor tells of it"


def _all_seen(yard: PostgresYard) -> datetime:
    return min(each.last_seen for each in yard.workers())


# -- case 19 -----------------------------------------------------------------------------------


GONE = b"DROP SCHEMA windlass CASCADE"
TOO_NEW = b"""
INSERT INTO windlass.migrations (number, name, oldest, oldest_release, release)
VALUES (99, 'later', 99, '9.9', '9.9')
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("sql", "remedy"),
    [(GONE, "windlass migrate"), (TOO_NEW, "upgrade windlass")],
    ids=["missing", "too new"],
)
def test_a_worker_refuses_a_schema_that_is_not_its_own_and_names_the_remedy(
    postgres_yard: PostgresYard, sql: bytes, remedy: str
) -> None:
    """Case 19. Prevents a release from working on a schema that it does not understand."""
    yard = postgres_yard
    with yard.raw() as db:
        db.execute(sql)
    process, output = yard.run("-m", "windlass", "worker", "tests.torture.programs.handlers:app")
    assert process.wait(PATIENCE) not in (0, None)
    assert remedy in " ".join(output.read_text().split())
    assert "Traceback" not in output.read_text()
