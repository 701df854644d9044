"""`windlass doctor` on workers: what none of them serves, their releases and their clocks."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from windlass.app.doctor import fleet_checks as checkup
from windlass.core.changes import Changes
from windlass.core.workers import WorkerPulse
from windlass.store.memory import MemoryStore
from windlass.store.sqlite import SqliteStore
from windlass.version import __version__

if TYPE_CHECKING:
    from tests.cli.conftest import Shell
from tests.cli.doctor.reports import problems


def test_waiting_jobs_without_a_worker_are_a_problem(shell: Shell) -> None:
    shell.enqueue()
    (found,) = problems(shell)
    assert "no worker is alive" in found["problem"]
    assert found["remedy"].startswith("windlass worker ")


def test_jobs_that_no_live_worker_serves_are_a_problem(shell: Shell) -> None:
    shell.start("send_email")
    shell.enqueue("send_email")
    assert problems(shell) == []
    shell.enqueue("unknown", queue="slow")
    (found,) = problems(shell)
    assert "kind unknown are pending in queue slow" in found["problem"]


def test_a_worker_that_drains_serves_nothing(shell: Shell) -> None:
    """`why`, `stats` and the metrics say so, too: doctor must not find that all is well."""
    shell.enqueue("send_email")
    shell.register("w1")
    shell.beat("w1", WorkerPulse())
    assert problems(shell) == []
    shell.beat("w1", WorkerPulse(state="draining"))
    (found,) = problems(shell)
    assert found["problem"].endswith(", but all workers are draining")
    assert found["remedy"].startswith("windlass worker ")
    shell.register("w2", kinds=("other",))
    (found,) = problems(shell)
    assert found["problem"] == (
        "jobs of kind send_email are pending in queue default, "
        "but all workers that serve them are draining"
    )
    assert found["remedy"].startswith("windlass worker ")
    shell.register("w3")
    assert problems(shell) == []


def test_a_paused_queue_is_a_note_and_what_waits_in_it_is_no_problem(shell: Shell) -> None:
    shell.enqueue(queue="mail")
    shell.ok("queues", "pause", "mail")
    assert problems(shell) == []
    notes = shell.ok("doctor", "--json").json["notes"]
    assert {"problem": "queue mail is paused", "remedy": "windlass queues resume mail"} in notes


def test_a_schedule_that_no_worker_can_tick_is_a_problem_as_long_as_that_is_so(shop: Shell) -> None:
    shop.ok("migrate")
    store = SqliteStore(shop.file)
    mark = {"next": "2026-03-01T12:00:00Z", "why": "unknown time zone 'Mars/X'"}
    records: dict[str, Any] = {
        "unserved:daily news": mark,
        "unserved:old": mark,
        "unserved:mine": {"next": None},
    }
    records |= {"schedule:daily news": {"unserved": True}, "schedule:old": {}}
    decided = store.apply([*records], lambda _known, _now: Changes(answer=None, records=records))
    shop.store(decided, store)
    (found,) = problems(shop)
    assert found["problem"] == (
        "schedule daily news is due, but no worker can run it: unknown time zone 'Mars/X'"
    )
    assert found["remedy"].endswith("windlass schedules show 'daily news'")


def notes(shell: Shell) -> list[str]:
    return [each["problem"] for each in shell.ok("doctor", "--json").json["notes"]]


def test_workers_of_several_releases_are_reported_by_their_names(shell: Shell) -> None:
    for name in ("w1", "w2"):
        shell.register(name, release=__version__)
    assert notes(shell) == []
    shell.register("w3", release="0.0.1")
    (told,) = notes(shell)
    assert told == (
        f"workers of several releases of windlass are alive (0.0.1: w3; {__version__}: w1, w2)"
    )
    for name in ("w1", "w2"):
        shell.retire(name)
    (told,) = notes(shell)
    assert told.startswith("workers run another release")
    shell.retire("w3")
    assert notes(shell) == ["no worker is alive"], "those that are gone do not matter"


@pytest.mark.parametrize(
    ("off", "told"), [(1, None), (-1, None), (90, "1m30s ahead of"), (-90, "1m30s behind")]
)
def test_a_host_whose_clock_differs_from_the_stores_is_reported(off: int, told: str | None) -> None:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    store = MemoryStore(clock=lambda: now)
    found = asyncio.run(checkup.clocks_apart(store, host_time=lambda: now + timedelta(seconds=off)))
    assert (found is None) is (told is None)
    if found is not None and told is not None:
        assert told in found.problem
        assert "NTP" in found.remedy


def test_a_worker_whose_clock_differs_from_the_stores_is_reported_with_its_host(
    shell: Shell,
) -> None:
    """Prevents deadlines that a handler computes from being wrong on one host, and nobody sees."""
    shell.ok("migrate")
    for name, host, off in (
        ("w1", "web-1", timedelta(seconds=1)),
        ("w2", "web-2", timedelta(seconds=90)),
        ("w3", "web-2", timedelta(seconds=89)),
        ("w4", "web-3", -timedelta(hours=1)),
        ("w5", "web-4", timedelta(hours=1)),
    ):
        shell.register(name, host=host)
        shell.beat(name, WorkerPulse(clock_ahead=off))
    shell.retire("w5")
    ahead, behind = problems(shell)
    assert ahead["problem"].startswith("the clock of host web-2 is 1m30s ahead of the store's")
    assert "(w2, w3)" in ahead["problem"]
    assert behind["problem"].startswith("the clock of host web-3 is 1h00m behind the store's")
    assert behind["remedy"].startswith("synchronise host web-3 and the store's host with NTP")
    store = SqliteStore(shell.file)
    workers = shell.store(store.workers(), store)
    (again,) = checkup.workers_clocks_apart(workers, reported={"web-2"})
    assert "web-3" in again.problem, "of the other one it is told already"
    facts = {
        each["id"]: each["clock_ahead"] for each in shell.ok("workers", "--json").json["workers"]
    }
    assert facts["w4"] == -3600


def test_of_many_hosts_with_wrong_clocks_some_are_named(shell: Shell) -> None:
    shell.ok("migrate")
    for number in range(12):
        shell.register(f"w{number}", host=f"web-{number:02}")
        shell.beat(f"w{number}", WorkerPulse(clock_ahead=timedelta(minutes=5 + number)))
    *told, rest = problems(shell)
    assert len(told) == 10
    assert rest["problem"] == "the clock of 2 more hosts differs from the store's"


def test_if_all_hosts_differ_alike_it_is_the_stores_clock(shell: Shell) -> None:
    shell.ok("migrate")
    for number in range(3):
        shell.register(f"w{number}", host=f"web-{number:02}")
        shell.beat(f"w{number}", WorkerPulse(clock_ahead=timedelta(minutes=5, milliseconds=number)))
    (told,) = problems(shell)
    assert "the store's clock" in told["problem"]
    assert "5m00s behind that of every host" in told["problem"]
