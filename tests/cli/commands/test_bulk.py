"""`--background` and `windlass bulk`: operations that workers carry on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from windlass.app.control import bulk_operations
from windlass.cli.actions import bulk_moves
from windlass.core.jobs.states import State

if TYPE_CHECKING:
    from tests.cli.conftest import Shell, Start


@pytest.fixture(autouse=True)
def _ada(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_ACTOR", "ada")


def test_an_operation_is_started_followed_and_done_by_a_worker(shop: Shell, start: Start) -> None:
    jobs = shop.dead(count=5)
    shop.retire()
    said = shop.ok("dead", "redrive", "--kind", "send_email", "--background", "--reason", "mended")
    assert "started: redrive 5 dead jobs" in said.out
    assert "follow it with: windlass bulk show" in said.err
    assert "no worker is running; the operation waits for one" in said.err
    assert shop.states(jobs) == {State.DEAD}
    (told,) = shop.ok("bulk", "list", "--json").json["bulks"]
    assert (told["verb"], told["state"], told["matched"], told["moved"]) == (
        "redrive",
        "running",
        5,
        0,
    )
    shown = shop.ok("bulk", "show", told["id"][:18])
    for text in ("0 of 5 jobs (0%)", "kind=send_email", "ada via cli", "mended"):
        assert text in shown.out
    assert "no worker is running" in shown.err
    worker = start("-m", "windlass", "worker", "shop:app", "--burst", "--metrics-port", "0")
    assert shop.ended(worker).code == 0
    told = shop.ok("bulk", "show", told["id"], "--json").json
    assert (told["state"], told["moved"], told["fraction"]) == ("completed", 5, 1.0)
    assert State.DEAD not in shop.states(jobs)


def test_an_operation_is_paused_resumed_and_stopped(shop: Shell) -> None:
    jobs = shop.enqueue(count=3)
    said = shop.ok("jobs", "cancel", "--all", "--background", "--rate", "1/h", "--yes", "--json")
    bulk = said.json["id"]
    assert said.json["rate"] == "1/h"
    assert "is paused: 0 jobs moved" in shop.ok("bulk", "pause", bulk).out
    assert "is running: 0 jobs moved" in shop.ok("bulk", "resume", bulk).out
    assert shop.ok("bulk", "stop", bulk, "--json").json["state"] == "stopped"
    assert "is stopped" in shop.ok("bulk", "resume", bulk).out
    assert "stopped" in shop.ok("bulk", "list").out
    assert shop.states(jobs) == {State.PENDING}
    actions = [each["action"] for each in shop.ok("audit", "list", "--json").json["entries"]]
    assert actions == ["stop", "resume", "pause", "cancel"]


def test_the_number_of_jobs_is_confirmed(shop: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_moves, "can_ask", lambda: True)
    shop.enqueue(count=3)
    said = shop("jobs", "cancel", "--all", "--background", stdin="n\n")
    assert (said.code, "Cancel 3 jobs?" in said.err) == (1, True)
    assert "nothing was started" in said.err
    monkeypatch.setattr(bulk_operations, "COUNTED", 2)
    said = shop("jobs", "cancel", "--all", "--background", stdin="n\n")
    assert "Cancel more than 2 jobs?" in said.err
    assert "no bulk operations" in shop.ok("bulk", "list").err


def test_wrong_usage_starts_nothing(shop: Shell) -> None:
    (job,) = shop.enqueue()
    shop("jobs", "cancel", job, "--background").refused("needs conditions", code=2)
    shop("jobs", "cancel", "--all", "--background").refused("confirm with --yes", code=2)
    shop("jobs", "purge", "--all", "--background", "--yes", "--rate", "fast").refused(
        "a rate must be", code=2
    )
    shop("bulk", "show", "0197").refused("no bulk operation begins with '0197'")
    assert shop.ok("jobs", "cancel", "--all", "--background", "--dry-run").out.startswith("1 job")
    for _ in range(2):
        shop.ok("jobs", "cancel", "--all", "--background", "--yes")
    first = shop.ok("bulk", "list", "--json").json["bulks"][0]["id"]
    shop("bulk", "show", first[:4]).refused("several bulk operations begin with")
