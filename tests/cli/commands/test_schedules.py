"""`windlass schedules`: what is there, when it ticks, and the levers."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from tests.cli.conftest import Shell
from windlass import State, Windlass

SHOP = """
from windlass import Windlass

app = Windlass(redact=["token"])


@app.job
async def report(tenant: str, token: str = "") -> None:
    pass


@app.cron("0 7 * * MON-FRI", tz="Europe/Berlin")
async def nightly() -> None:
    pass
"""


def put(shell: Shell, name: str = "acme", **more: Any) -> None:
    """Put a schedule, as a web application would."""
    app = Windlass(f"sqlite:///{shell.file}")
    times: dict[str, Any] = {"cron": "30 2 * * *", "tz": "Europe/Berlin"} | more
    app.schedules.put(name, "report", {"tenant": "acme", "token": "t0ps3cret"}, **times)
    app.close()


def test_schedules_are_listed_with_their_state_and_what_is_next(shop: Shell) -> None:
    assert "no schedules" in shop.ok("schedules", "list").err
    put(shop)
    put(shop, "beta", cron=None, tz=None, every="90m")
    shop.register("w1", kinds=("report",))
    told = shop.ok("schedules", "list", "--json").json
    assert told["total"] == 2
    acme, beta = told["schedules"]
    assert (acme["schedule"], acme["state"], acme["kind"]) == ("acme", "active", "report")
    assert (acme["cron"], acme["tz"], acme["every"]) == ("30 2 * * *", "Europe/Berlin", None)
    assert (beta["cron"], beta["tz"], beta["every"]) == (None, None, 5400.0)
    assert (acme["ticks"], acme["last_job"], acme["declared"]) == (0, None, False)
    assert acme["next"] > acme["since"]
    table = shop.ok("schedules", "list").out
    assert "30 2 * * *" in table
    assert "every 1h30m" in table
    (only,) = shop.ok("schedules", "list", "--prefix", "b", "--json").json["schedules"]
    assert only["schedule"] == "beta"
    assert "1 more schedule" in shop.ok("schedules", "list", "--limit", 1).err


def test_unserved_schedules_are_marked(shop: Shell) -> None:
    put(shop)
    (told,) = shop.ok("schedules", "list", "--json").json["schedules"]
    assert told["state"] == "unserved"
    text = shop.ok("schedules", "show", "acme").out
    assert "no live worker can run it" in text


def test_one_is_shown_with_its_job_and_without_its_secrets(shop: Shell) -> None:
    shop.write("shop.py", SHOP)
    put(shop, jitter="5m", catch_up="all", catch_up_limit=7)
    told = shop.ok("schedules", "show", "acme", "--app", "shop:app", "--json").json
    assert told["payload"] == {"tenant": "acme", "token": "***"}
    assert (told["jitter"], told["catch_up"], told["catch_up_limit"]) == (300.0, "all", 7)
    assert told["overlap"] == "queue"
    text = shop.ok("schedules", "show", "acme", "--app", "shop:app").out
    assert "t0ps3cret" not in text
    assert "all, at most 7" in text
    assert "Europe/Berlin" in text


def test_the_next_ticks_are_shown_in_the_schedules_own_zone(shop: Shell) -> None:
    put(shop)
    told = shop.ok("schedules", "next", "acme", "--count", 3, "--json").json
    assert len(told["next"]) == 3
    assert told["next"] == sorted(told["next"])
    lines = shop.ok("schedules", "next", "acme", "--count", 400).out.splitlines()
    assert len(lines) == 400
    assert all(" 02:30:00 " in line or " 03:00:00 +0200" in line for line in lines)
    assert sum(" 03:00:00 +0200" in line for line in lines) in (1, 2), "where clocks go forward"


def test_one_is_paused_and_resumed(shop: Shell) -> None:
    put(shop)
    assert shop.ok("schedules", "pause", "acme").out == "schedule acme is paused\n"
    again = shop.ok("schedules", "pause", "acme", "--json").json
    assert (again["state"], again["changed"], again["next"]) == ("paused", False, None)
    assert "paused; resume it" in shop.ok("schedules", "next", "acme").err
    assert "schedule acme is active, next tick in " in shop.ok("schedules", "resume", "acme").out
    assert "was already active" in shop.ok("schedules", "resume", "acme").out


def test_one_is_run_now(shop: Shell) -> None:
    put(shop)
    told = shop.ok("schedules", "run", "acme", "--json").json
    job = shop.job(UUID(told["id"]))
    assert (job.state, job.headers["windlass-schedule"]) == (State.PENDING, "acme")
    assert shop.ok("schedules", "run", "acme").out.strip() != told["id"]
    shown = shop.ok("schedules", "show", "acme", "--json").json
    assert shown["ticks"] == 2


def test_one_is_removed_when_that_is_confirmed(shop: Shell) -> None:
    put(shop)
    shop("schedules", "remove", "acme").refused("confirm with --yes", code=2)
    assert shop.ok("schedules", "remove", "acme", "--yes").out == "schedule acme removed\n"
    assert shop.ok("schedules", "list", "--json").json == {"schedules": [], "total": 0}


def test_one_of_an_apps_code_comes_back(shop: Shell) -> None:
    shop.write("shop.py", SHOP)
    asyncio.run(_declare(shop))
    (told,) = shop.ok("schedules", "list", "--json").json["schedules"]
    assert (told["schedule"], told["declared"]) == ("nightly", True)
    assert "comes back" in shop.ok("schedules", "remove", "nightly", "--yes").err


async def _declare(shell: Shell) -> None:
    app = Windlass(f"sqlite:///{shell.file}")

    @app.cron("0 7 * * MON-FRI", tz="Europe/Berlin")
    async def nightly() -> None: ...

    await app.arun_worker(burst=True)
    await app.aclose()


@pytest.mark.parametrize("command", ["show", "next", "pause", "resume", "run", "remove"])
def test_one_that_does_not_exist_is_refused_with_the_remedy(shop: Shell, command: str) -> None:
    more = ["--yes"] if command == "remove" else []
    shop("schedules", command, "nope", *more).refused("no schedule 'nope'", "schedules list")
