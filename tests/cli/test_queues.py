"""`windlass queues` and `windlass workers`: what waits, and who works on it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from windlass.core.job import Pulse

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
    assert shop.ok("queues", "pause", "mail").out == "queue mail is paused already\n"
    (queue,) = shop.ok("queues", "list", "--json").json["queues"]
    assert (queue["queue"], queue["paused"]) == ("mail", True)
    assert "paused" in shop.ok("queues", "list").out
    assert shop.ok("queues", "resume", "mail").out == "queue mail resumed\n"
    assert shop.ok("queues", "resume", "mail", "--json").json == {
        "queue": "mail",
        "paused": False,
        "changed": False,
    }
    assert "none is paused" in shop.ok("queues", "list").err


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
    shell.beat("w1", Pulse(running=7, slots=12))
    assert "7/12 of 5..100" in shell.ok("workers").out
    (worker,) = shell.ok("workers", "--json").json["workers"]
    told = (worker["running"], worker["slots"], worker["least_slots"], worker["most_slots"])
    assert told == (7, 12, 5, 100)


def test_a_fixed_number_of_slots_is_shown_as_it_is(shell: Shell) -> None:
    shell.register("w1", slots=9)
    row = shell.ok("workers").out.splitlines()[2]
    assert "0/9" in row
    assert ".." not in row
    (worker,) = shell.ok("workers", "--json").json["workers"]
    assert (worker["slots"], worker["least_slots"], worker["most_slots"]) == (9, 9, 9)


def test_where_nobody_works_it_is_said_how_to_start(shop: Shell) -> None:
    said = shop.ok("workers")
    assert (said.out, "windlass worker" in said.err) == ("", True)
