"""Workers that go on while the next release runs `windlass migrate`, and who come after them.

The next release is today's code with one more migration and other functions: nothing was released
yet, no test may need a network, and a clone may have no history.
"""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.support.clocked_stores import migrate
from tests.support.postgres_workers import PostgresYard
from tests.support.releases import next_release
from tests.support.worker_processes import until
from windlass import Kind, State, Windlass

MORE = 150
PACE = 0.004
"""Seconds between two jobs of the producer: some hundreds a second at most."""
PAUSE = 0.1
"""Seconds that each job takes, so that some run at any moment."""
FINISHED = "SELECT count(*) FROM finished_jobs WHERE state = 'completed'"
TOO_NEW = """
INSERT INTO migrations (number, name, oldest, oldest_release, release)
VALUES (99, 'later', 99, '9.9', '9.9')
"""
ELSEWHERE = "SELECT (SELECT count(*) FROM jobs) + (SELECT count(*) FROM dead_jobs)"


@pytest.mark.long
@pytest.mark.timeout(300)  # It starts a fleet, a migration and another fleet, one after the other.
def test_workers_go_on_while_the_schema_is_migrated_and_the_next_release_takes_over(
    postgres_url: str, tmp_path: Path
) -> None:
    """Not one job is lost, fails, or runs twice, under load."""
    with closing(PostgresYard(tmp_path, postgres_url)) as yard:
        migrate(postgres_url)
        old = yard.fleet("--processes=2")
        old.crew(2)
        with producing(postgres_url) as sent:
            done(yard, MORE)
            before = yard.value(FINISHED)
            with next_release():
                migrate(postgres_url)
            during = yard.value(FINISHED)
            done(yard, during + MORE)
        assert during > before, "they worked while it was migrated"
        assert len(old.events("worker.started")) == 2, "and are the same as before"
        become = "from tests.support.releases import become_next; become_next()"
        yard.fleet("--processes=1", app="later:app", before=become).crew(1)
        jobs = [*sent, *yard.enqueue_many("quick", MORE)]
        old.send(signal.SIGTERM)
        jobs += yard.enqueue_many("quick", MORE)
        assert old.ended() == 0
        done(yard, len(jobs))
        assert yard.value(FINISHED) == len(jobs)
        assert (yard.value(ELSEWHERE), yard.charged()) == (0, 0)
        runs = Counter(entry.job for entry in yard.ledger.entries("start"))
        assert runs == Counter(map(str, jobs))


@pytest.mark.long
def test_a_fleet_leaves_a_schema_for_newer_releases_and_is_back_when_its_code_fits(
    postgres_yard: PostgresYard,
) -> None:
    """Those who serve drain and say what to do; who shall replace them refuses, until it fits."""
    yard = postgres_yard
    fleet = yard.fleet(
        "--processes=2", patches={"windlass.worker.services.housekeeping:CHECK_SECONDS": 0.2}
    )
    fleet.crew(2)
    held = yard.enqueue("wait", gate="drain")
    yard.begun(held)
    yard.ask(TOO_NEW)
    assert "upgrade windlass here" in fleet.event("schema.outgrown")["remedy"]
    yard.open_gate("drain")
    assert yard.settled(held).state is State.COMPLETED
    until(lambda: not any(each.alive for each in yard.workers()), "the end of both")
    late = yard.enqueue("quick")
    until(lambda: "which supports Windlass 9.9 and newer" in fleet.output(), "the refusal")
    assert yard.job(late).state is State.PENDING
    yard.ask("DELETE FROM migrations WHERE number = 99")
    assert yard.settled(late).state is State.COMPLETED


@contextmanager
def producing(url: str) -> Iterator[list[UUID]]:
    """Enqueue one job after the other around a block; give their ids, complete when it is over."""
    sent: list[UUID] = []
    failed: list[BaseException] = []
    enough = threading.Event()
    with closing(Windlass(url)) as app:
        producer = app.producer(Kind("quick", dict[str, Any]))

        def produce() -> None:
            try:
                while not enough.wait(PACE):
                    sent.append(producer.enqueue({"pause": PAUSE}).id)
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=produce)
        thread.start()
        try:
            yield sent
        finally:
            enough.set()
            thread.join()
        assert not failed, failed


def done(yard: PostgresYard, count: int) -> None:
    """Wait until so many jobs are completed."""
    until(lambda: yard.value(FINISHED) >= count, f"{count} completed jobs")
