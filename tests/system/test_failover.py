"""Failover of PostgreSQL under load: a primary that dies, and a standby that takes its place.

A ledger decides, not a clock: the acknowledgements of producers, and the runs of handlers, both
kept where no server can lose them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.support.postgres_workers import PostgresYard
from tests.support.worker_processes import PATIENCE, until
from tests.system.replication import Copy, Primary, pair
from windlass import EnqueueUncertain, Kind, State, StoreUnavailable, Windlass
from windlass.core.errors import UnknownJob

BEFORE = 150
"""Jobs that are done before the primary dies."""
AFTER = 150
"""Jobs that are done afterwards."""
PACE = 0.004
COMPLETED = "SELECT id FROM finished_jobs WHERE state = 'completed'"
ELSEWHERE = "SELECT (SELECT count(*) FROM jobs) + (SELECT count(*) FROM dead_jobs)"


@pytest.fixture
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no file of settings have a say."""
    monkeypatch.chdir(tmp_path)


class Producing:
    """A producer that keeps a ledger of its own: what was acknowledged, and what never was."""

    def __init__(self) -> None:
        self.acknowledged: list[UUID] = []
        self.refused = 0
        self.repeated = 0
        self.failed: list[BaseException] = []


@contextmanager
def producing(url: str, count: int = 2) -> Iterator[list[Producing]]:
    """Enqueue from several threads around a block; an uncertain enqueue is repeated."""
    enough = threading.Event()
    ledgers = [Producing() for _ in range(count)]
    with closing(Windlass(url)) as app:
        threads = [threading.Thread(target=_produce, args=[app, each, enough]) for each in ledgers]
        for thread in threads:
            thread.start()
        try:
            yield ledgers
        finally:
            enough.set()
            for thread in threads:
                thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    assert not any(each.failed for each in ledgers), [each.failed for each in ledgers]


def _produce(app: Windlass, ledger: Producing, enough: threading.Event) -> None:
    producer = app.producer(Kind("quick", dict[str, Any]))
    try:
        while not enough.wait(PACE):
            try:
                ledger.acknowledged.append(producer.enqueue({"pause": 0.02}).id)
            except EnqueueUncertain as error:
                ledger.acknowledged.append(_repeated(ledger, error))
            except StoreUnavailable:
                ledger.refused += 1
    except BaseException as error:
        ledger.failed.append(error)


def _repeated(ledger: Producing, error: EnqueueUncertain) -> UUID:
    def again() -> UUID | None:
        try:
            ledger.repeated += 1
            return error.retry()[0].id
        except EnqueueUncertain:
            return None

    found = until(again, "an answer to an enqueue")
    assert found is not None
    return found


def acknowledged(ledgers: list[Producing]) -> list[UUID]:
    return [job for each in ledgers for job in each.acknowledged]


def completed(yard: PostgresYard) -> list[UUID]:
    return [row[0] for row in yard.ask(COMPLETED)]


@pytest.mark.timeout(300)  # It makes two servers, a fleet, and a failover.
@pytest.mark.usefixtures("_nowhere")
def test_a_failover_to_a_synchronous_standby_loses_nothing_that_was_acknowledged(
    tmp_path: Path,
) -> None:
    with (
        pair("synchronous") as (primary, standby, url),
        closing(PostgresYard(tmp_path, url)) as yard,
    ):
        fleet = yard.fleet("--processes=2", "--concurrency=5", lease="10s")
        fleet.crew(2)
        with producing(url) as ledgers:
            until(lambda: len(completed(yard)) >= BEFORE, "some work")
            _fail_over(primary, standby)
            before = len(acknowledged(ledgers))
            until(lambda: len(acknowledged(ledgers)) >= before + AFTER, "enqueues go on")
        jobs = acknowledged(ledgers)
        until(lambda: yard.value(ELSEWHERE) == 0, "the end of every job")

        assert len(jobs) == len(set(jobs))
        done = completed(yard)
        assert set(jobs) <= set(done), "an acknowledged job is gone"
        assert len(done) == len(set(done)), "a job has two outcomes"
        assert yard.charged() == 0
        ends = {entry.job for entry in yard.ledger.entries("end")}
        assert {str(job) for job in done} <= ends, "a job was recorded that did not run"
        assert fleet.is_running()


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("_nowhere")
def test_a_failover_to_an_asynchronous_standby_loses_the_writes_that_it_had_not_received(
    tmp_path: Path,
) -> None:
    """What docs/failover.md says that may be lost: enqueues, and the ends of jobs."""
    with (
        pair("asynchronous") as (primary, standby, url),
        closing(PostgresYard(tmp_path, url)) as yard,
    ):
        repeated = yard.enqueue("quick")
        until(lambda: _has(standby, url, repeated), "the first job at the standby")
        standby.let_go()
        worker = yard.worker(lease="10s")
        assert yard.settled(repeated).state is State.COMPLETED
        lost = yard.enqueue("quick")
        assert yard.settled(lost).state is State.COMPLETED
        _fail_over(primary, standby)

        assert yard.settled(repeated).state is State.COMPLETED
        until(lambda: len(yard.ledger.entries("end", repeated)) == 2, "its second run")
        assert len(yard.ledger.entries("end", lost)) == 1
        with pytest.raises(UnknownJob):
            yard.job(lost)
        assert worker.is_running()


def _fail_over(primary: Primary, standby: Copy) -> None:
    """Kill the primary as a power cut does, and let the standby take its place."""
    primary.kill()
    standby.promote()


def _has(server: Copy, url: str, job: UUID) -> bool:
    database = url.partition("?")[0].rpartition("/")[2]
    with server.connection(database) as db:
        found = db.execute("SELECT FROM windlass.jobs WHERE id = %s", [job]).fetchone()
    return found is not None
