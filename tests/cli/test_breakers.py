"""`windlass breakers`: which are open, why, and how they are forced; and what the doctor says."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from windlass.core.breaker import Rule
from windlass.core.breaker_record import (
    BreakerState,
    BreakerStatus,
    Enlist,
    Failure,
    react,
    record_of,
)
from windlass.core.changes import Changes
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
    assert "no breaker is known here" in shop.ok("breakers", "list").err
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


def test_one_is_shown_with_its_history(shop: Shell) -> None:
    fail(shop)
    shop.ok("breakers", "close", "stripe")
    told = shop.ok("breakers", "show", "stripe", "--json").json
    opened, closed = told["history"]
    assert (opened["from"], opened["to"], opened["by"]) == ("closed", "open", "w1")
    assert (closed["from"], closed["to"], closed["by"]) == ("open", "closed", "an operator")
    assert closed["why"] == "kept closed by hand"
    text = shop.ok("breakers", "show", "stripe").out
    assert "closed (by hand)" in text
    assert text.index("open → closed: kept closed by hand") < text.index(
        "closed → open: 2 failures"
    )


@pytest.mark.parametrize(
    ("command", "said", "state"),
    [
        ("open", "breaker stripe is kept open by hand, and open\n", BreakerState.OPEN),
        ("close", "breaker stripe is kept closed by hand, and closed\n", BreakerState.CLOSED),
    ],
)
def test_one_is_forced_and_let_go_again(
    shop: Shell, command: str, said: str, state: BreakerState
) -> None:
    fail(shop, 1)
    assert shop.ok("breakers", command, "stripe").out == said
    assert "was already kept" in shop.ok("breakers", command, "stripe").out
    again = shop.ok("breakers", command, "stripe", "--json").json
    assert (again["state"], again["changed"]) == (state.value, False)
    assert "is automatic, and" in shop.ok("breakers", "auto", "stripe").out
    assert "was already automatic" in shop.ok("breakers", "auto", "stripe").out


@pytest.mark.parametrize("command", ["show", "open", "close", "auto"])
def test_one_that_does_not_exist_is_refused_with_those_that_do(shop: Shell, command: str) -> None:
    fail(shop)
    shop("breakers", command, "strip").refused("no breaker 'strip'; there are: stripe")


def test_the_doctor_says_which_jobs_wait_for_which_breaker_and_until_when(shop: Shell) -> None:
    fail(shop)
    shop.enqueue()
    shop.register("w1")
    (note,) = shop.ok("doctor", "--json").json["notes"]
    told = "jobs of kind send_email wait: breaker stripe is open until 2"
    assert note["problem"].startswith(told)
    assert ", in 59m" in note["problem"] or ", in 1h:" in note["problem"]
    assert note["problem"].endswith(": 2 failures in a row, the last: Down")
    assert note["remedy"] == "windlass breakers close stripe"
    shop.ok("breakers", "open", "stripe")
    (note,) = shop.ok("doctor", "--json").json["notes"]
    assert "is open, kept so by hand" in note["problem"]
    assert note["remedy"] == "windlass breakers auto stripe"


def test_the_doctor_finds_a_breaker_that_nobody_defined(shop: Shell) -> None:
    shop.write("shop.py", SHOP.replace('Breaker("stripe")', '"strip"'))
    problems = shop("doctor", "shop:app", "--json").json["problems"]
    assert any("'strip', which nobody defined" in each["problem"] for each in problems)


def test_a_job_that_waits_says_which_breaker_is_open(shell: Shell) -> None:
    shell.write("shop.py", SHOP)
    (job_id,) = shell.enqueue("send_email")
    (other,) = shell.enqueue("greet")

    def broken(job: object) -> list[str]:
        shown = shell.ok("jobs", "show", job, "--json").json
        return [each["told"] for each in shown["reasons"] if each["cause"] == "breaker"]

    assert broken(job_id) == []
    fail(shell)
    (told,) = broken(job_id)
    assert told.startswith("breaker stripe is open until ")
    assert "windlass breakers close stripe" in shell.ok("jobs", "show", job_id).out
    assert broken(other) == [], "of another kind"
    shell.ok("breakers", "open", "stripe")
    assert "windlass breakers auto stripe" in shell.ok("jobs", "show", job_id).out
