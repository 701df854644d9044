"""Failover of PostgreSQL under load: a primary that dies, and a standby that takes its place.

A ledger decides, not a clock: the acknowledgements of producers, and the runs of handlers, both
kept where no server can lose them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from tests.support.network_proxy import Proxy
from tests.support.postgres_workers import PostgresYard
from tests.support.worker_processes import PATIENCE, until
from tests.system.bouncer import PgBouncer
from tests.system.replication import Copy, Primary, either, pair
from windlass import EnqueueUncertain, Kind, State, StoreUnavailable, Windlass
from windlass.app.doctor.fleet_checks import lineages_apart
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
    with closing(Windlass(url, listen_url="off")) as app:
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


class Way(NamedTuple):
    """How clients find the primary, and how it comes that this is another server."""

    url: str
    fail_over: Callable[[], None]


@contextmanager
def several_hosts(primary: Primary, standby: Copy, database: str) -> Iterator[Way]:
    """A URL with both hosts; the primary dies."""
    yield Way(either(database, primary.port, standby.port), lambda: _fail_over(primary, standby))


@contextmanager
def silent_primary(primary: Primary, standby: Copy, database: str) -> Iterator[Way]:
    """A URL with both hosts; the primary's network swallows everything, and nobody is told."""
    with Proxy(primary.url()) as proxy:

        def fail_over() -> None:
            proxy.black_hole()
            standby.promote()

        url = either(database, proxy.port, standby.port)
        yield Way(f"{url}&connect_timeout=2", fail_over)


@contextmanager
def moving_endpoint(primary: Primary, standby: Copy, database: str) -> Iterator[Way]:
    """An address that leads to the primary, as of a managed service, a proxy or a virtual IP."""
    with Proxy(primary.url()) as proxy:

        def fail_over() -> None:
            _fail_over(primary, standby)
            proxy.lead_to(standby.url())

        yield Way(proxy.url(primary.url(database.removeprefix("/"))), fail_over)


@contextmanager
def pooler(primary: Primary, standby: Copy, database: str) -> Iterator[Way]:
    """PgBouncer before the primary; an operator, or Patroni, gives it the new address."""
    with PgBouncer(primary) as bouncer:

        def fail_over() -> None:
            _fail_over(primary, standby)
            bouncer.lead_to(standby)

        yield Way(bouncer.through(primary.url(database.removeprefix("/"))), fail_over)


WAYS = (several_hosts, silent_primary, moving_endpoint, pooler)


@pytest.mark.timeout(300)  # It makes two servers, a fleet, and a failover.
@pytest.mark.usefixtures("_nowhere")
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_failover_to_a_synchronous_standby_loses_nothing_that_was_acknowledged(
    way: Callable[[Primary, Copy, str], AbstractContextManager[Way]], tmp_path: Path
) -> None:
    with (
        pair("synchronous") as (primary, standby, database),
        way(primary, standby, database) as (url, fail_over),
        closing(_yard(tmp_path, primary, standby, database, url)) as yard,
    ):
        listen = either(database, primary.port, standby.port) if way is pooler else ""
        fleet = yard.fleet(
            "--processes=2",
            "--concurrency=5",
            lease="20s",
            environ={"WINDLASS_LISTEN_URL": listen},
        )
        fleet.crew(2)
        with producing(url) as ledgers:
            until(lambda: len(completed(yard)) >= BEFORE, "some work")
            fail_over()
            yard.look_again()
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
        pair("asynchronous") as (primary, standby, database),
        closing(PostgresYard(tmp_path, either(database, primary.port, standby.port))) as yard,
    ):
        repeated = yard.enqueue("quick")
        until(lambda: _has(standby, database, repeated), "the first job at the standby")
        standby.let_go()
        lineage = yard.call(yard.app.store.lineage())
        worker = yard.worker(
            lease="10s", patches={"windlass.worker.services.housekeeping:_PRUNE_SECONDS": 0.2}
        )
        assert yard.settled(repeated).state is State.COMPLETED
        lost = yard.enqueue("quick")
        assert yard.settled(lost).state is State.COMPLETED
        _fail_over(primary, standby)

        assert yard.settled(repeated).state is State.COMPLETED
        until(lambda: len(yard.ledger.entries("end", repeated)) == 2, "its second run")
        assert len(yard.ledger.entries("end", lost)) == 1
        with pytest.raises(UnknownJob):
            yard.job(lost)
        assert yard.call(yard.app.jobs.amissing([lost, repeated])) == [lost]
        assert yard.call(yard.app.store.lineage()) != lineage
        until(lambda: worker.events("store.lineage_changed"), "a word about the other server")
        found = yard.call(lineages_apart(yard.app.store))
        assert found is not None
        assert "windlass restored missing" in found.remedy
        assert worker.is_running()


def _fail_over(primary: Primary, standby: Copy) -> None:
    """Kill the primary as a power cut does, and let the standby take its place."""
    primary.kill()
    standby.promote()


def _yard(
    directory: Path, primary: Primary, standby: Copy, database: str, url: str
) -> PostgresYard:
    """Return a yard whose workers go by a URL; it looks itself at the standby once it can."""
    own = either(database, standby.port, primary.port)
    return PostgresYard(directory, own, workers_url=url)


def _has(server: Copy, database: str, job: UUID) -> bool:
    with server.connection(database.removeprefix("/")) as db:
        found = db.execute("SELECT FROM windlass.jobs WHERE id = %s", [job]).fetchone()
    return found is not None
