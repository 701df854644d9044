"""`windlass queues` and `windlass workers`: what waits, and who works on it."""

from __future__ import annotations

import asyncio
import shlex
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from windlass import Windlass
from windlass.core.workers import WorkerPulse
from windlass.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from tests.cli.conftest import Shell


def test_queues_are_listed_with_their_jobs_by_state(shell: Shell) -> None:
    shell.enqueue(queue="mail", count=2)
    shell.enqueue(queue="mail", due=timedelta(hours=1))
    shell.dead(queue="slow")
    mail, slow = shell.ok("queues", "list", "--json").json["queues"]
    assert (mail["queue"], mail["pending"], mail["scheduled"], mail["dead"]) == ("mail", 2, 1, 0)
    assert 0 <= mail["oldest_waiting_seconds"] < 60
    assert (slow["dead"], slow["oldest_waiting_seconds"]) == (1, None)
    rows = [row.split()[:4] for row in shell.ok("queues", "list").out.splitlines()[2:]]
    assert rows == [["mail", "1", "2", "0"], ["slow", "0", "0", "0"]]


def test_a_paused_queue_is_listed_even_when_it_is_empty(shop: Shell) -> None:
    assert shop.ok("queues", "pause", "mail").out == "queue mail paused\n"
    assert shop.ok("queues", "pause", "mail").out == "queue mail is already paused\n"
    (queue,) = shop.ok("queues", "list", "--json").json["queues"]
    assert (queue["queue"], queue["paused"]) == ("mail", True)
    assert "paused" in shop.ok("queues", "list").out
    assert shop.ok("queues", "resume", "mail").out == "queue mail resumed\n"
    assert shop.ok("queues", "resume", "mail", "--json").json == {
        "queue": "mail",
        "paused": False,
        "changed": False,
    }
    assert "no queue has jobs or is paused" in shop.ok("queues", "list").err


@pytest.mark.parametrize("queue", ["", " ", "a\nb", "x" * 201])
def test_a_queue_that_cannot_be_is_not_paused(shop: Shell, queue: str) -> None:
    shop("queues", "pause", queue).refused("a queue", code=2)


def test_workers_are_alive_or_gone(shell: Shell) -> None:
    shell.enqueue()
    shell.start(worker="w1")
    shell.start(worker="w2")
    shell.retire("w1")
    alive, gone = shell.ok("workers", "--json").json["workers"]
    assert (alive["id"], alive["alive"], alive["state"]) == ("w2", True, "running")
    assert (gone["id"], gone["alive"], gone["state"]) == ("w1", False, "gone")
    assert (alive["slots"], alive["kinds"], alive["host"], alive["pid"]) == (
        4,
        ["send_email"],
        "host",
        12,
    )
    assert {"last_seen", "processed", "running", "queues", "release"} <= alive.keys()
    rows = [row.split()[:2] for row in shell.ok("workers").out.splitlines()[2:]]
    assert rows == [["w2", "running"], ["w1", "gone"]]
    assert len(shell.ok("workers", "--alive", "--json").json["workers"]) == 1


def test_slots_that_follow_the_load_are_shown_with_their_bounds(shell: Shell) -> None:
    shell.register("w1", slots=100, least_slots=5)
    assert "0/5 of 5..100" in shell.ok("workers").out, "it has told nothing yet"
    shell.beat("w1", WorkerPulse(running=7, slots=12))
    assert "7/12 of 5..100" in shell.ok("workers").out
    (worker,) = shell.ok("workers", "--json").json["workers"]
    told = (worker["running"], worker["slots"], worker["least_slots"], worker["most_slots"])
    assert told == (7, 12, 5, 100)


def test_the_kinds_that_every_worker_has_are_not_shown_to_people(shell: Shell) -> None:
    kinds = ("send_email", "windlass.flow", "windlass.pipeline")
    shell.register("w1", kinds=kinds)
    assert shell.ok("workers").out.splitlines()[2].split()[-1] == "send_email"
    (worker,) = shell.ok("workers", "--json").json["workers"]
    assert worker["kinds"] == list(kinds)


def test_a_fixed_number_of_slots_is_shown_as_it_is(shell: Shell) -> None:
    shell.register("w1", slots=9)
    row = shell.ok("workers").out.splitlines()[2]
    assert "0/9" in row
    assert ".." not in row
    (worker,) = shell.ok("workers", "--json").json["workers"]
    assert (worker["slots"], worker["least_slots"], worker["most_slots"]) == (9, 9, 9)


def test_without_workers_the_start_command_is_shown(shop: Shell) -> None:
    said = shop.ok("workers")
    assert (said.out, "windlass worker" in said.err) == ("", True)


# -- pauses of kinds and keys, and drains ----------------------------------------------------------


@pytest.mark.parametrize(("what", "name"), [("kind", "send_email"), ("key", "acme")])
def test_a_kind_and_a_key_are_paused_as_a_queue_is(shop: Shell, what: str, name: str) -> None:
    assert shop.ok("queues", "pause", f"--{what}", name).out == f"{what} {name} paused\n"
    again = shop.ok("queues", "pause", f"--{what}", name).out
    assert again == f"{what} {name} is already paused\n"
    listed = shop.ok("queues", "list", "--json").json
    assert (listed["queues"], listed["paused"][f"{what}s"]) == ([], [name])
    told = shop.ok("queues", "list").err
    assert f"{what} {name} is paused: windlass queues resume --{what} {name}" in told
    assert shop.ok("queues", "resume", f"--{what}", name, "--json").json == {
        what: name,
        "paused": False,
        "changed": True,
    }
    assert shop.ok("queues", "list", "--json").json["paused"] == {"kinds": [], "keys": []}


@pytest.mark.parametrize("args", [(), ("mail", "--kind", "send_email"), ("--key", "")])
def test_one_thing_is_paused_at_a_time(shop: Shell, args: tuple[str, ...]) -> None:
    shop("queues", "pause", *args).refused("exactly one" if "" not in args else "a key", code=2)
    shop("queues", "resume", *args).refused("exactly one" if "" not in args else "a key", code=2)


@pytest.mark.parametrize("what", ["queue", "kind", "key"])
def test_the_command_that_resumes_a_name_with_a_dash_can_be_run(shell: Shell, what: str) -> None:
    shell.ok("migrate")
    shell.ok("queues", "pause", *(["--"] if what == "queue" else [f"--{what}"]), "--bogus")
    notes = shell("doctor", "--json").json["notes"]
    (remedy,) = [each["remedy"] for each in notes if "--bogus is paused" in each["problem"]]
    assert shell.ok(*shlex.split(remedy)[1:]).out == f"{what} --bogus resumed\n"


def test_a_job_that_waits_says_what_is_paused(shell: Shell) -> None:
    (job_id,) = shell.enqueue(queue="mail")

    def paused() -> list[str]:
        shown = shell.ok("jobs", "show", job_id, "--json").json
        return [each["message"] for each in shown["reasons"] if each["cause"] == "paused"]

    assert paused() == []
    shell.ok("queues", "pause", "mail")
    shell.ok("queues", "pause", "--kind", "send_email")
    assert paused() == ["queue mail is paused", "kind send_email is paused"]
    text = shell.ok("jobs", "show", job_id).out
    assert "queue mail is paused → windlass queues resume mail" in text
    assert "kind send_email is paused → windlass queues resume --kind send_email" in text
    shell.ok("queues", "resume", "mail")
    shell.ok("queues", "resume", "--kind", "send_email")
    shell.start(queue="mail")
    shell.ok("queues", "pause", "mail")
    assert paused() == [], "it runs"
    assert "runs it" not in shell.ok("jobs", "show", job_id).out, "who holds it is told above"


def test_a_drain_pauses_the_queue_and_says_how_it_went(shell: Shell) -> None:
    shell.enqueue(queue="mail", count=2)
    shell.start(queue="mail")
    shell.enqueue(queue="other")
    shell.start(queue="other", worker="w2")
    late = shell("queues", "pause", "mail", "--wait", "--timeout", "100ms")
    late.refused("queue mail is paused, but 2 jobs still running")
    idle = shell("queues", "pause", "quiet", "--wait", "--timeout", "100ms")
    idle.refused("queue quiet is paused, but workers may not have noticed it yet")
    said = shell("queues", "pause", "mail", "--wait", "--timeout", "0.1", "--json")
    assert (said.code, said.json) == (
        1,
        {"queue": "mail", "idle": False, "paused": True, "running": 2},
    )
    (queue, *_) = shell.ok("queues", "list", "--json").json["queues"]
    assert (queue["queue"], queue["paused"]) == ("mail", True)


def test_a_drain_of_what_does_not_run_ends_and_can_be_repeated(shell: Shell) -> None:
    shell.enqueue(queue="mail")
    assert (
        shell.ok("queues", "pause", "mail", "--wait").out
        == "queue mail paused; none of its jobs is running\n"
    )
    assert shell.ok("queues", "pause", "mail", "--wait", "--json").json == {
        "queue": "mail",
        "idle": True,
        "paused": True,
        "running": 0,
    }


@pytest.mark.parametrize("args", [("",), (), ("mail", "--timeout", "soon")])
def test_a_drain_that_cannot_be_is_refused(shop: Shell, args: tuple[str, ...]) -> None:
    shop("queues", "pause", *args, "--wait").refused(code=2)


# -- targets ---------------------------------------------------------------------------------------


def test_kinds_with_a_target_are_listed_with_their_late_jobs(shell: Shell) -> None:
    app = Windlass()

    @app.job(slo="start within 10ms")
    async def promised() -> None: ...

    async def work_off() -> None:
        await app.arun_worker(burst=True)
        await app.aclose()

    (job_id,) = shell.enqueue("promised")
    said = shell.ok("slo")
    assert (said.out, "slo='5s'" in said.err) == ("", True)
    assert shell.ok("slo", "--json").json == {"kinds": []}
    time.sleep(0.05)
    asyncio.run(work_off())
    (kind,) = shell.ok("slo", "--json").json["kinds"]
    assert (kind["kind"], kind["target_seconds"]) == ("promised", 0.01)
    assert (kind["started"], kind["late"], kind["last_late"]["job"]) == (1, 1, str(job_id))
    assert kind["worst_wait_seconds"] == kind["last_late"]["waited_seconds"] >= 0.05
    row = shell.ok("slo").out.splitlines()[2].split()
    assert row[:5] == ["promised", "10ms", "1", "1", "0.00%"]


def test_a_count_that_may_be_too_low_has_a_plus(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.dead(count=3)
    assert "+" not in shell.ok("queues", "list").out
    monkeypatch.setattr(SqliteStore.counts, "__kwdefaults__", {"most": 2})
    assert "2+" in shell.ok("queues", "list").out
    (queue,) = shell.ok("queues", "list", "--json").json["queues"]
    assert (queue["dead"], queue["capped"]) == (2, ["dead"])
