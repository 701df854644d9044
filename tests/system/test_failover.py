"""Failover of PostgreSQL under load: a primary that dies, and a standby that takes its place.

A ledger decides, not a clock: the acknowledgements of producers, and the runs of handlers, both
kept where no server can lose them. How long it may take, docs/failover.md says, and a metronome.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from uuid import UUID

import pytest

from tests.support.postgres_workers import PostgresYard
from tests.support.worker_processes import PATIENCE, WorkerProcess, until
from tests.system.failover_ways import WAYS, Ways, fail_over
from tests.system.metronome import Metronome, beating, bound
from tests.system.producing import PRODUCERS, Producing, acknowledged, answered, producing
from tests.system.replication import Copy, Primary, either, pair, replicated
from windlass import State
from windlass.app.doctor.fleet_checks import lineages_apart
from windlass.core.errors import UnknownJob

BEFORE = 150
"""Jobs that are done before the primary dies."""
AFTER = 150
"""Jobs that are done afterwards."""
PROCESSES, CONCURRENCY = 2, 5
COMPLETED = "SELECT id FROM finished_jobs WHERE state = 'completed'"
ELSEWHERE = "SELECT (SELECT count(*) FROM jobs) + (SELECT count(*) FROM dead_jobs)"


@pytest.fixture
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no file of settings have a say."""
    monkeypatch.chdir(tmp_path)


def completed(yard: PostgresYard) -> list[UUID]:
    return [row[0] for row in yard.ask(COMPLETED)]


@pytest.mark.timeout(300)  # It makes two servers, a fleet, and a failover.
@pytest.mark.usefixtures("_nowhere")
@pytest.mark.parametrize("ways", WAYS, ids=lambda ways: ways.__name__)
def test_a_failover_to_a_synchronous_standby_loses_nothing_that_was_acknowledged(
    ways: Ways, tmp_path: Path
) -> None:
    with (
        pair("synchronous") as (primary, standby, database),
        ways(primary, standby, database) as way,
        closing(_yard(tmp_path, database, way.url, standby, primary)) as yard,
    ):
        fleet = _fleet(yard, way.listen_url)
        with producing(way.url) as ledgers:
            until(lambda: len(completed(yard)) >= BEFORE, "some work")
            way.fail_over()
            with beating(standby) as metronome:
                _goes_on(yard, ledgers)
                until(lambda: _started(yard, standby), "jobs start")
        _in_time(metronome, way.row, standby, answered(ledgers, standby.promoted_at), yard)
        _all_there(yard, ledgers)
        assert fleet.is_running()


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("_nowhere")
def test_of_two_standbys_the_one_that_is_ahead_has_all_that_was_acknowledged(
    tmp_path: Path,
) -> None:
    with (
        replicated("ANY 1 (near, far)", "near", "far") as (primary, copies, database),
        closing(
            _yard(tmp_path, database, either(database, *_ports(primary, *copies)), *copies, primary)
        ) as yard,
    ):
        near, far = copies
        fleet = _fleet(yard)
        with producing(yard.workers_url) as ledgers:
            until(lambda: len(completed(yard)) >= BEFORE, "some work")
            near.let_go()
            _goes_on(yard, ledgers)
            primary.kill()
            ahead = max(copies, key=Copy.received)
            assert ahead is far
            last = ledgers[0].acknowledged[-1].job
            assert not _has(near, database, last), "either would have done"
            ahead.promote()
            _goes_on(yard, ledgers)
        _all_there(yard, ledgers)
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
        fail_over(primary, standby)

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


def _fleet(yard: PostgresYard, listen_url: str = "") -> WorkerProcess:
    fleet = yard.fleet(
        f"--processes={PROCESSES}",
        f"--concurrency={CONCURRENCY}",
        lease="20s",
        environ={"WINDLASS_LISTEN_URL": listen_url},
    )
    fleet.crew(PROCESSES)
    return fleet


def _goes_on(yard: PostgresYard, ledgers: list[Producing]) -> None:
    """Wait for more enqueues, at whichever server can be written to by now."""
    yard.look_again()
    before = len(acknowledged(ledgers))
    until(lambda: len(acknowledged(ledgers)) >= before + AFTER, "enqueues go on")


def _started(yard: PostgresYard, standby: Copy) -> list[float]:
    """Return when jobs started that cannot have been claimed before the standby was promoted."""
    starts = [entry.at for entry in yard.ledger.entries("start")]
    return sorted(at for at in starts if at > standby.promoted_at)[PROCESSES * CONCURRENCY :]


def _in_time(
    metronome: Metronome, row: str, standby: Copy, answers: list[float], yard: PostgresYard
) -> None:
    """Compare how long it took with what the page allows, and print it for the page."""
    # One answer of the old primary may have been on its way to each producer.
    firsts = {"enqueue": answers[PRODUCERS], "jobs": _started(yard, standby)[0]}
    for what, moment in firsts.items():
        took, beats = moment - standby.promoted_at, metronome.seconds_until(moment)
        print(f"{row}: {what} after {took:.1f} s, {beats:.1f} s by the metronome")
        assert beats <= bound(row), what


def _all_there(yard: PostgresYard, ledgers: list[Producing]) -> None:
    """Compare what producers and handlers noted with what the store says in the end."""
    until(lambda: yard.value(ELSEWHERE) == 0, "the end of every job", 2 * PATIENCE)
    jobs, done = acknowledged(ledgers), completed(yard)
    assert len(jobs) == len(set(jobs))
    assert set(jobs) <= set(done), "an acknowledged job is gone"
    assert len(done) == len(set(done)), "a job has two outcomes"
    assert yard.charged() == 0
    ends = {entry.job for entry in yard.ledger.entries("end")}
    assert {str(job) for job in done} <= ends, "a job was recorded that did not run"


def _yard(directory: Path, database: str, url: str, *servers: Primary) -> PostgresYard:
    """Return a yard whose workers go by a URL; it looks itself at the first server that it can."""
    return PostgresYard(directory, either(database, *_ports(*servers)), workers_url=url)


def _ports(*servers: Primary) -> list[int]:
    return [each.port for each in servers]


def _has(server: Copy, database: str, job: UUID) -> bool:
    with server.connection(database.removeprefix("/")) as db:
        found = db.execute("SELECT FROM windlass.jobs WHERE id = %s", [job]).fetchone()
    return found is not None
