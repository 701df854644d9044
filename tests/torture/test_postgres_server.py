"""A server of one's own that crashes, or has no room left: what it acknowledged is there."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, LiteralString
from uuid import UUID, uuid4

import pytest

from tests.support.postgres.server import Server
from tests.support.postgres_workers import OTHERS, PostgresYard
from tests.support.worker_processes import CALM, PATIENCE, WorkerProcess, until
from tests.torture.conftest import migrate
from windlass import Kind, State, StoreUnavailable, Windlass
from windlass.app.enqueueing.id_generator import IdGenerator
from windlass.core.claims.lanes import Ask, Claim
from windlass.core.jobs.job import Lane, NewJob
from windlass.core.jobs.settle import Transition
from windlass.core.workers import WorkerInfo
from windlass.store.postgres import PostgresStore

SETTINGS: dict[str, str | int] = {
    # What was committed without waiting for the disk stays in memory until somebody waits.
    "wal_writer_delay": "10s",
    # Room for its writes is not taken away in the middle of a test by its own housekeeping.
    "autovacuum": "off",
    "checkpoint_timeout": "1h",
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Give a server that is as durable as any: nothing is off that keeps data safe."""
    with Server(settings=SETTINGS) as server:
        yield server


@pytest.fixture
def url(server: Server) -> Iterator[str]:
    """Give a database with the schema on that server."""
    name = f"windlass_{uuid4().hex[:12]}"
    url = server.create_database(name)
    migrate(url)
    yield url
    server.drop_database(name)


@pytest.fixture
def own_yard(tmp_path: Path, url: str) -> Iterator[PostgresYard]:
    """Give a yard on that server."""
    with closing(PostgresYard(tmp_path, url)) as yard:
        yield yard


# -- case 21 -----------------------------------------------------------------------------------


JOBS = 600
LASTING = 12
"""The seconds of a lease that outlasts a restart of the server."""


@pytest.mark.long
def test_acknowledged_writes_survive_an_immediate_restart_under_load(
    own_yard: PostgresYard, server: Server
) -> None:
    """Case 21. Prevents an outcome that was recorded from being forgotten, and a lost job."""
    yard = own_yard
    workers = [yard.worker(concurrency=10), yard.worker(concurrency=10)]
    for worker in workers:
        worker.started()
    jobs = yard.enqueue_many("quick", JOBS, pause=0.01)
    for share in (JOBS // 5, JOBS // 2):
        until(lambda: len(completed(yard)) > share, "some work")  # noqa: B023
        acknowledged = completed(yard)
        server.restart("immediate")
        assert acknowledged.items() <= completed(yard).items()
    until(lambda: len(completed(yard)) == JOBS, "the rest")

    assert completed(yard).keys() == set(jobs)
    assert yard.value("SELECT count(*) FROM jobs") == 0
    assert yard.value("SELECT count(*) FROM dead_jobs") == 0
    ends = Counter(entry.job for entry in yard.ledger.entries("end"))
    assert ends.keys() == {str(job) for job in jobs}
    assert all(worker.is_running() for worker in workers)


@pytest.mark.long
def test_an_immediate_restart_costs_a_supervisor_no_lease(
    own_yard: PostgresYard, server: Server
) -> None:
    """Case 21. Prevents a supervisor that does not come back, and jobs that run twice for it.

    The handler holds the interpreter of its worker, so that only the supervisor can renew. The
    lease is long against a restart on a busy machine, and the handler holds on for twice as long:
    without the supervisor it would run out, and the other worker would be seasoned by then.
    """
    yard = own_yard
    fleet = yard.fleet("--processes=2", lease=f"{LASTING}s")
    fleet.crew(2)
    job = yard.enqueue("hold_interpreter", seconds=2 * LASTING)
    yard.begun(job)
    yard.enqueue("quick")  # What was written before this is on the disk, too: the claim as well.
    server.restart("immediate")
    done = yard.settled(job)

    assert (done.state, done.history) == (State.COMPLETED, ())
    assert not fleet.events("lease.lost")
    assert not fleet.events("job.rescued")
    until(lambda: len(completed(yard)) == 2, "the other job")


def completed(yard: PostgresYard) -> dict[UUID, tuple[Any, ...]]:
    """Return which jobs are completed, with all that was recorded of that."""
    rows = yard.ask("SELECT id, attempt, worker, finished_at, result::text FROM finished_jobs")
    return {row[0]: row[1:] for row in rows}


@pytest.mark.long
def test_a_claim_that_a_crash_forgot_settles_nothing_when_its_job_is_claimed_again(
    url: str, server: Server
) -> None:
    """Case 21. Prevents a claim, which waits for no disk, from acknowledging the next one's run.

    The same worker claims the same job again, by the same attempt: only the token differs.
    """
    job = NewJob(id=IdGenerator().next(), kind="raced", payload=b"{}")
    claim = Claim(asks=(Ask(lane=Lane("default", "raced"), count=1),))

    async def main() -> None:
        store = PostgresStore(url, listen_url="off")
        await store.enqueue([job])
        await store.register(_info())
        (first,) = await store.claim(claim, worker="same", token=1)
        await asyncio.to_thread(server.restart, "immediate")

        forgotten = await _again(store.get(job.id), lambda: store.get(job.id))
        assert forgotten is not None
        assert (forgotten.state, forgotten.attempt) == (State.PENDING, 0), "the claim was not lost"
        (second,) = await _again(
            store.claim(claim, worker="same", token=2),
            lambda: store.claim(claim, worker="same", token=2),
        )
        assert (first.attempt, first.worker) == (second.attempt, second.worker)
        stale = Transition(id=job.id, token=1, state=State.DEAD)
        assert await store.settle([stale]) == [False]
        assert await store.settle([Transition(id=job.id, token=1, state=State.COMPLETED)]) == [
            False
        ]
        running = await store.get(job.id)
        assert running is not None
        assert (running.state, running.token) == (State.RUNNING, 2)
        assert await store.settle([Transition(id=job.id, token=2, state=State.COMPLETED)]) == [True]
        await store.close()

    asyncio.run(main())


async def _again(first: Any, second: Any) -> Any:
    """Do something by a connection that may have died, and once more if it has."""
    try:
        return await first
    except StoreUnavailable:
        return await second()


def _info() -> WorkerInfo:
    return WorkerInfo(
        id="same", name="same", host="here", pid=1, release="1", lease=timedelta(hours=1), slots=1
    )


# -- case 22, for connections that lie idle ----------------------------------------------------


def test_an_idle_connection_that_died_in_silence_costs_a_moment_and_no_job(
    own_yard: PostgresYard,
) -> None:
    """Case 22. Prevents a firewall that forgets idle connections from failing the next enqueue.

    Nothing tells the client: the processes at the other end stand still.
    """
    yard = own_yard
    app = Windlass(yard.plain_url, listen_url="off", enqueue_timeout=f"{PATIENCE}s")
    kind = app.producer(Kind("quick", dict[str, Any]))
    with asyncio.Runner() as runner:
        handles = [kind.enqueue({}), runner.run(kind.aenqueue({}))]
        used = time.monotonic()
        until(lambda: time.monotonic() > used + 1.1, "connections that are not fresh any more")
        silent = [pid for (pid,) in yard.ask(BACKENDS)]
        assert len(silent) == 2
        with frozen(silent):
            handles += [kind.enqueue({}), runner.run(kind.aenqueue({}))]
        runner.run(app.aclose())
    assert len({handle.id for handle in handles}) == 4
    assert yard.states() == {State.PENDING: 4}


BACKENDS: LiteralString = f"SELECT pid FROM pg_stat_activity WHERE {OTHERS}"


@contextmanager
def frozen(processes: list[int]) -> Iterator[None]:
    """Let processes stand still for a while."""
    try:
        for pid in processes:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in processes:
            os.kill(pid, signal.SIGCONT)


# -- case 31 -----------------------------------------------------------------------------------


SEGMENT = 16 * 2**20
"""The size of a segment of the server's log, which is made as a whole: no file may be larger."""
MEGABYTE = 2**20
NO_ROOM = "File too large"


@contextmanager
def full_disk(server: Server) -> Iterator[None]:
    """Have the kernel refuse all that the server writes beyond the end of a large file.

    That (RLIMIT_FSIZE) is how a full disk looks to it, needs no privileges and can be taken back.
    """
    server.stop()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SEGMENT, hard))
    try:
        server.start()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    try:
        yield
    finally:
        server.restart("fast")


@pytest.mark.long
def test_a_full_disk_is_an_error_that_passes_and_nothing_is_lost_or_made_up(
    own_yard: PostgresYard, server: Server
) -> None:
    """Case 31. Prevents a job that was accepted, or acknowledged, without being on the disk."""
    yard = own_yard
    app = Windlass(yard.url, max_payload=2 * MEGABYTE, enqueue_timeout="2s")
    kind = app.producer(Kind("take_text", dict[str, Any]))
    accepted: list[UUID] = []
    with full_disk(server):
        with pytest.raises(StoreUnavailable, match=NO_ROOM):
            while True:
                accepted.append(kind.enqueue({"text": noise()}).id)
        most = str(2 * MEGABYTE)
        limit = {"WINDLASS_MAX_PAYLOAD": most, "WINDLASS_MAX_RESULT": most}
        worker = yard.worker(concurrency=3, environ=limit, patches=CALM)
        until(lambda: bool(failures(worker)), "a worker that finds no room for its outcomes")
        with pytest.raises(StoreUnavailable, match=NO_ROOM):
            kind.enqueue({"text": noise()})
        kept = completed(yard)
    assert 0 < len(kept) < len(accepted)

    done = [yard.settled(job) for job in accepted]
    assert [(job.state, job.attempt) for job in done] == [(State.COMPLETED, 1)] * len(accepted)
    assert kept.items() <= completed(yard).items()
    assert completed(yard).keys() == set(accepted)
    assert Counter(entry.job for entry in yard.ledger.entries("start")) == {
        str(job): 1 for job in accepted
    }
    assert worker.is_running()
    app.close()


def noise() -> str:
    """Return a megabyte that nobody can compress."""
    return random.randbytes(MEGABYTE // 2).hex()


def failures(worker: WorkerProcess) -> list[dict[str, Any]]:
    """Return what the worker says of a store that has no room."""
    return [event for event in worker.events("store.lost") if NO_ROOM in event["error"]]
