"""`windlass breakers`: which are open, why, and how they are forced; and what the doctor says."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from windlass.core.changes import Changes
from windlass.core.policies.breaker import Rule
from windlass.core.policies.breaker_record import (
    BreakerState,
    BreakerStatus,
    Enlist,
    Failure,
    react,
    record_of,
)
from windlass.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from tests.cli.conftest import Shell

RULE = Rule(name="stripe", failures=2, cooldown=timedelta(hours=1))
SHOP = """
from windlass import Breaker, Windlass

app = Windlass()


@app.job(breaker=Breaker("stripe"))
async def charge() -> None:
    pass
"""


def fail(shell: Shell, count: int = 2) -> None:
    """Let a worker tell of failures."""
    store = SqliteStore(shell.file)

    async def work() -> None:
        await store.apply(
            ["breaker:stripe"],
            lambda _, now: Changes(
                answer=None,
                records={
                    "breaker:stripe": record_of(
                        react(
                            BreakerStatus(name="stripe"),
                            [Enlist(kinds=["send_email"]), *[Failure(why="Down")] * count],
                            rule=RULE,
                            by="w1",
                            now=now,
                        )
                    )
                },
            ),
        )

    shell.store(work(), store)


def test_breakers_are_listed_with_their_state_and_why(shop: Shell) -> None:
    assert "no breakers yet" in shop.ok("breakers", "list").err
    fail(shop)
    (told,) = shop.ok("breakers", "list", "--json").json["breakers"]
    assert (told["breaker"], told["state"], told["failures"]) == ("stripe", "open", 2)
    assert (told["forced"], told["kinds"]) == (None, ["send_email"])
    assert told["why"] == "2 failures in a row, the last: Down"
    assert told["until"] > told["opened_at"]
    assert "history" not in told
    row = shop.ok("breakers", "list").out.splitlines()[2]
    assert row.split()[:3] == ["stripe", "open", "2"]
    assert "2 failures in a row" in row


def test_the_breakers_of_an_app_are_listed_before_any_worker_was_there(shop: Shell) -> None:
    shop.write("shop.py", SHOP)
    (told,) = shop.ok("breakers", "list", "--app", "shop:app", "--json").json["breakers"]
    assert (told["breaker"], told["state"]) == ("stripe", "closed")


def test_one_is_shown_with_its_history(shop: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(shop)
    monkeypatch.setenv("WINDLASS_ACTOR", "ada")
    shop.ok("breakers", "close", "stripe")
    told = shop.ok("breakers", "show", "stripe", "--json").json
    opened, closed = told["history"]
    assert (opened["from"], opened["to"], opened["by"]) == ("closed", "open", "w1")
    assert (closed["from"], closed["to"], closed["by"]) == ("open", "closed", "ada")
    assert closed["why"] == "pinned closed by hand"
    text = shop.ok("breakers", "show", "stripe").out
    assert "closed (by hand)" in text
    assert text.index("open → closed: pinned closed by hand") < text.index(
        "closed → open: 2 failures"
    )


@pytest.mark.parametrize(
    ("command", "said", "state"),
    [
        ("open", "breaker stripe is pinned open by hand, and open\n", BreakerState.OPEN),
        ("close", "breaker stripe is pinned closed by hand, and closed\n", BreakerState.CLOSED),
    ],
)
def test_one_is_forced_and_let_go_again(
    shop: Shell, command: str, said: str, state: BreakerState
) -> None:
    fail(shop, 1)
    assert shop.ok("breakers", command, "stripe").out == said
    assert "was already pinned" in shop.ok("breakers", command, "stripe").out
    again = shop.ok("breakers", command, "stripe", "--json").json
    assert (again["state"], again["changed"]) == (state.value, False)
    assert "is automatic, and" in shop.ok("breakers", "auto", "stripe").out
    assert "was already automatic" in shop.ok("breakers", "auto", "stripe").out


def test_an_open_one_is_tried_now_and_goes_by_itself_then(shop: Shell) -> None:
    fail(shop)
    assert "is automatic, and half-open" in shop.ok("breakers", "probe", "stripe").out
    told = shop.ok("breakers", "show", "stripe", "--json").json
    assert (told["forced"], told["history"][-1]["why"]) == (None, "probed by hand")
    again = shop.ok("breakers", "probe", "stripe", "--json").json
    assert (again["state"], again["changed"]) == ("half-open", False), "there is nothing to do"


def test_pinning_a_breaker_prints_its_effect_and_doctor_reports_it(shop: Shell) -> None:
    fail(shop)
    said = shop.ok("breakers", "close", "stripe")
    assert "it stays closed whatever fails" in said.err
    assert "windlass breakers auto stripe" in said.err
    warnings = shop("doctor", "--json").json["warnings"]
    found = [each for each in warnings if "stripe" in each["problem"]]
    assert [each["remedy"] for each in found] == ["windlass breakers auto stripe"]
    assert "pinned closed by hand" in found[0]["problem"]
    shop.ok("breakers", "auto", "stripe")
    assert "stripe" not in str(shop("doctor", "--json").json["warnings"])


@pytest.mark.parametrize("command", ["show", "open", "close", "auto", "probe"])
def test_one_that_does_not_exist_is_refused_with_those_that_do(shop: Shell, command: str) -> None:
    fail(shop)
    shop("breakers", command, "strip").refused("no breaker 'strip'; known breakers: stripe")


def test_the_doctor_says_which_jobs_wait_for_which_breaker_and_until_when(shop: Shell) -> None:
    fail(shop)
    shop.enqueue()
    shop.register("w1")
    (note,) = shop.ok("doctor", "--json").json["warnings"]
    told = "jobs of kind send_email wait: breaker stripe is open until 2"
    assert note["problem"].startswith(told)
    assert ", in 59m" in note["problem"] or ", in 1h00m:" in note["problem"]
    assert note["problem"].endswith(": 2 failures in a row, the last: Down")
    assert note["remedy"] == "windlass breakers probe stripe"
    shop.ok("breakers", "open", "stripe")
    (note,) = shop.ok("doctor", "--json").json["warnings"]
    assert "is pinned open by hand" in note["problem"]
    assert note["remedy"] == "windlass breakers auto stripe"


def test_the_doctor_finds_an_undefined_breaker(shop: Shell) -> None:
    shop.write("shop.py", SHOP.replace('Breaker("stripe")', '"strip"'))
    problems = shop("doctor", "shop:app", "--json").json["problems"]
    assert any("'strip', which is not defined" in each["problem"] for each in problems)


def test_a_job_that_waits_says_which_breaker_is_open(shell: Shell) -> None:
    shell.write("shop.py", SHOP)
    (job_id,) = shell.enqueue("send_email")
    (other,) = shell.enqueue("greet")

    def broken(job: object) -> list[str]:
        shown = shell.ok("jobs", "show", job, "--json").json
        return [each["message"] for each in shown["reasons"] if each["cause"] == "breaker"]

    assert broken(job_id) == []
    fail(shell)
    (told,) = broken(job_id)
    assert told.startswith("breaker stripe is open until ")
    assert "windlass breakers probe stripe" in shell.ok("jobs", "show", job_id).out
    assert broken(other) == [], "of another kind"
    shell.ok("breakers", "open", "stripe")
    assert "windlass breakers auto stripe" in shell.ok("jobs", "show", job_id).out
