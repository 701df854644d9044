"""Fleets whose start goes wrong: before the store is there, killed on the way, hung up on."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.network_proxy import Proxy
from tests.support.postgres_workers import PostgresYard, SqliteYard, on_sqlite
from tests.support.worker_processes import until
from tests.torture.programs.families import descendants
from windlass import State


def test_a_fleet_that_starts_before_its_server_waits_for_it_and_says_so(
    far_yard: PostgresYard, proxy: Proxy
) -> None:
    """Prevents a deploy that fails since things were started in another order."""
    yard = far_yard
    job = yard.enqueue("quick")
    proxy.refuse()
    fleet = yard.fleet()
    line = fleet.event("store.awaited")
    assert "refused" in line["error"]
    assert line["gives_up_in"]
    proxy.accept()
    assert yard.settled(job).state is State.COMPLETED
    assert fleet.event("store.reached")["waited"]
    assert len(fleet.events("store.awaited")) == 1


@on_sqlite
def test_a_fleet_that_waits_for_its_store_ends_on_sigterm(yard: SqliteYard) -> None:
    """Prevents a container that does not stop since its database never came."""
    nowhere = "postgresql://ann@windlass-nowhere.invalid/jobs"
    fleet = yard.fleet(environ={"WINDLASS_URL": nowhere})
    fleet.event("store.awaited")
    fleet.send(signal.SIGTERM)
    assert fleet.ended() == 0
    assert not fleet.events("worker.stuck")


def test_a_fleet_that_may_not_wait_ends_at_once_with_the_reason(
    far_yard: PostgresYard, proxy: Proxy
) -> None:
    proxy.refuse()
    fleet = far_yard.fleet("--wait-for-store=0")
    assert fleet.ended() == 1
    assert "refused" in fleet.output()
    assert not fleet.events("store.awaited")


def test_a_fleet_whose_wait_is_over_ends_with_the_reason(
    far_yard: PostgresYard, proxy: Proxy
) -> None:
    proxy.refuse()
    fleet = far_yard.fleet(environ={"WINDLASS_WAIT_FOR_STORE": "1s"})
    assert fleet.ended() == 1
    assert fleet.events("store.awaited")
    assert "refused" in fleet.output()
    assert re.search(r"waited 1(\.\d)?s for the store: .*--wait-for-store", fleet.output())


def test_a_url_that_can_never_work_is_not_waited_for(postgres_yard: PostgresYard) -> None:
    """Prevents a minute of silence about a mistake that only a person can put right."""
    server = postgres_yard.plain_url.rpartition("/")[0]
    login, _, host = server.partition("://")[2].rpartition("@")
    cases = {
        f"{server}/no_such_database": "createdb",
        f"postgresql://nobody_at_all@{host}/postgres": "nobody_at_all",
        "mysql://localhost/jobs": "mysql",
        f"sqlite:///{postgres_yard.directory}/nowhere/jobs.db": "mkdir -p",
    }
    assert login
    fleets = {url: postgres_yard.fleet(environ={"WINDLASS_URL": url}) for url in cases}
    for url, fleet in fleets.items():
        assert fleet.ended() == 1
        assert cases[url] in fleet.output()
        assert not fleet.events("store.awaited")


@on_sqlite
def test_a_worker_that_is_killed_before_it_serves_is_replaced(yard: SqliteYard) -> None:
    """Prevents one kill, of memory or by hand, from ending a whole fleet without a word."""
    fleet = yard.fleet("--processes=2")
    killed = until(lambda: descendants(fleet.pid), "the first process")[0]
    assert not fleet.events("worker.started")
    os.kill(killed, signal.SIGKILL)
    ended = fleet.event("process.ended", pid=killed)
    assert ended["level"] == "error"
    assert ended["how"].startswith("died of SIGKILL")
    assert killed not in fleet.crew(2)
    assert yard.settled(yard.enqueue("quick")).state is State.COMPLETED


@on_sqlite
def test_a_worker_that_cannot_start_by_itself_ends_the_fleet(yard: SqliteYard) -> None:
    """What no repetition helps is said once, and not repeated."""
    yard.open_gate("broken")
    fleet = yard.fleet("--processes=2")
    assert fleet.ended() == 1
    assert "this release was not tested" in fleet.output()


@on_sqlite
def test_a_hangup_during_the_start_ends_nothing(yard: SqliteYard) -> None:
    """Prevents a fleet that is gone because somebody had it reloaded too early."""
    with slow_file(yard.directory / "slow.toml") as slow:
        fleet = yard.fleet(environ={"WINDLASS_CONFIG": str(slow.path)})
        slow.asked.wait()
        fleet.send(signal.SIGHUP)
        slow.answered.set()
        assert yard.settled(yard.enqueue("quick")).state is State.COMPLETED
        assert fleet.is_running()


class Slow:
    """A file that is read by who starts, and that a test lets end when it likes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.asked = threading.Event()
        self.answered = threading.Event()
        self.over = False

    def serve(self) -> None:
        """Let one reader after the other come, and give it an empty file."""
        while not self.over:
            # Opened once there is a reader, which has come to its settings then.
            with self.path.open("w"):
                self.asked.set()
                self.answered.wait()


@contextmanager
def slow_file(path: Path) -> Iterator[Slow]:
    """Give a file whose first reader waits; those after it do not."""
    os.mkfifo(path)
    slow = Slow(path)
    thread = threading.Thread(target=slow.serve, daemon=True)
    thread.start()
    try:
        yield slow
    finally:
        slow.over = True
        slow.answered.set()
        with last_reader(path):
            thread.join(60)


@contextmanager
def last_reader(path: Path) -> Iterator[None]:
    """Be the last reader, so that who waits for one goes on."""
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield
    finally:
        os.close(reader)
