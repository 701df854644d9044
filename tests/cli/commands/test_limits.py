"""`windlass limits`: what is limited, and changing that while workers run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from windlass.core.changes import Changes
from windlass.core.policies.limit import Limit
from windlass.core.workers import LimitInfo
from windlass.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from tests.cli.conftest import Shell

CRAWLER = """
from windlass import Windlass

app = Windlass()
app.limit("gpu", concurrency=8)
app.limit(queue="mail", rate="100/m", burst=10)


@app.job(key="host", rate="10/s", concurrency=5)
async def crawl(host: str) -> None: ...
"""


@pytest.fixture
def crawler(shell: Shell) -> Shell:
    """A shell in whose directory an app has limits."""
    shell.write("shop.py", CRAWLER)
    shell.ok("migrate")
    return shell


def limits(shell: Shell) -> dict[str, dict[str, object]]:
    found = shell.ok("limits", "list", "--app", "shop:app", "--json").json["limits"]
    return {each.pop("limit"): each for each in found}


def test_limits_are_listed_as_the_code_has_them(crawler: Shell) -> None:
    assert limits(crawler) == {
        "gpu": {
            "per": None,
            "rate": None,
            "burst": None,
            "concurrency": 8,
            "changed": False,
            "held": 0,
            "used": 0,
            "holders": {},
            "exhausted": False,
            "kinds": [],
        },
        "kind:crawl": {
            "per": "key",
            "rate": "10/s",
            "burst": None,
            "concurrency": 5,
            "changed": False,
            "held": 0,
            "used": 0,
            "holders": {},
            "exhausted": False,
            "kinds": ["crawl"],
        },
        "queue:mail": {
            "per": None,
            "rate": "100/m",
            "burst": 10,
            "concurrency": None,
            "changed": False,
            "held": 0,
            "used": 0,
            "holders": {},
            "exhausted": False,
            "kinds": [],
        },
    }
    rows = crawler.ok("limits", "list", "--app", "shop:app").out.splitlines()[2:]
    assert [row.split()[0] for row in rows] == ["gpu", "kind:crawl", "queue:mail"]


def test_a_limit_is_changed_and_reset(crawler: Shell) -> None:
    change = ("limits", "set", "kind:crawl", "--app", "shop:app")
    said = crawler.ok(*change, "--rate", "20/s", "--concurrency", 6)
    assert said.out == "limit kind:crawl is rate 20/s, concurrency 6\n"
    told = crawler.ok(*change, "--burst", 3, "--json").json
    assert (told["rate"], told["burst"], told["concurrency"]) == ("20/s", 3, 6)
    told = limits(crawler)["kind:crawl"]
    assert (told["rate"], told["burst"], told["changed"]) == ("20/s", 3, True)
    assert "changed" in crawler.ok("limits", "list", "--app", "shop:app").out
    told = crawler.ok(*change, "--rate", "5/m", "--json").json
    assert (told["rate"], told["burst"]) == ("5/m", None), "the burst was that of the other rate"
    assert crawler.ok("limits", "reset", "kind:crawl").out == "limit kind:crawl reset\n"
    assert crawler.ok("limits", "reset", "kind:crawl", "--json").json == {
        "limit": "kind:crawl",
        "changed": False,
    }
    assert limits(crawler)["kind:crawl"]["rate"] == "10/s"


def test_without_an_app_whatever_was_changed_is_shown(shop: Shell) -> None:
    assert "--app" in shop.ok("limits", "list").err
    shop.ok("limits", "set", "gpu", "--concurrency", 2)
    (told,) = shop.ok("limits", "list", "--json").json["limits"]
    assert (told["limit"], told["concurrency"], told["changed"]) == ("gpu", 2, True)


def test_without_an_app_the_limits_that_live_workers_report_are_listed(shop: Shell) -> None:
    # `windlass why` names them as what holds a job back: they must not be missing here.
    reported = {"kind:crawl": LimitInfo(rate="1/m"), "gpu": LimitInfo(concurrency=8)}
    uses = {"crawl": {"kind:crawl": 1}}
    shop.register("w1", kinds=("crawl",), limits=reported, uses=uses)
    shop.ok("limits", "set", "gpu", "--concurrency", 2)
    gpu, crawl = shop.ok("limits", "list", "--json").json["limits"]
    assert (gpu["limit"], gpu["concurrency"], gpu["changed"]) == ("gpu", 2, True)
    assert (crawl["limit"], crawl["rate"], crawl["kinds"]) == ("kind:crawl", "1/m", ["crawl"])
    assert not crawl["changed"]
    shop.retire("w1")
    assert [each["limit"] for each in shop.ok("limits", "list", "--json").json["limits"]] == ["gpu"]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["kind:crawl"], "a change of a limit needs"),
        (["kind:crawl", "--rate", "ten"], "got 'ten'"),
        (["kind:crawl", "--rate", "0/s"], "from 1 to"),
        (["kind:crawl", "--concurrency", "-1"], "from 1 to"),
        (["kind:crowl", "--rate", "1/s"], "there is no limit 'kind:crowl'"),
        (["gpu", "--burst", "1"], "has no rate"),
    ],
)
def test_invalid_limits_are_refused(crawler: Shell, args: list[str], told: str) -> None:
    said = crawler("limits", "set", *args, "--app", "shop:app")
    assert said.code == 2
    assert told in " ".join(said.err.replace("│", " ").split())


def test_an_app_without_limits_knows_that_there_are_none(shop: Shell) -> None:
    """Prevents: in an incident `limits set` says that a kind is limited, and it is not."""
    said = shop("limits", "set", "kind:charge", "--rate", "1/m", "--app", "shop:app")
    assert said.code == 2
    text = " ".join(said.err.replace("│", " ").split())
    assert "there is no limit 'kind:charge'; known limits: none. Only limits that" in text
    assert "limits nothing as yet" in shop.ok("limits", "set", "typo", "--rate", "1/m").err


def test_limits_of_other_apps_workers_can_be_changed_where_they_are_listed(crawler: Shell) -> None:
    """Prevents: `limits list --app` shows a limit that `limits set --app` does not know."""
    uses = {"render": {"licences": 3}}
    reported = {"licences": LimitInfo(concurrency=8)}
    crawler.register("w1", kinds=("render",), limits=reported, uses=uses)
    assert limits(crawler)["licences"]["concurrency"] == 8
    crawler.ok("limits", "set", "licences", "--concurrency", 4, "--app", "shop:app")
    assert limits(crawler)["licences"]["concurrency"] == 4
    said = crawler("limits", "set", "licences", "--concurrency", 2, "--app", "shop:app")
    assert said.code == 2
    assert "kind 'render' uses 3 units" in " ".join(said.err.replace("│", " ").split())


def test_a_job_that_waits_says_which_limit_is_used_up(crawler: Shell) -> None:
    said = crawler.ok("enqueue", "crawl", "--app", "shop:app", '{"host": "x"}', "--json")
    job_id = said.json["id"]
    crawler.register("w1", kinds=("crawl",))

    def limited() -> list[str]:
        shown = crawler.ok("jobs", "show", job_id, "--app", "shop:app", "--json").json
        why = crawler.ok("why", job_id, "--app", "shop:app", "--json").json
        assert shown["reasons"] == why["reasons"], "there is one answer"
        return [each["message"] for each in shown["reasons"] if each["cause"] == "limited"]

    def hold(cooling: int) -> None:
        store = SqliteStore(crawler.file)
        name = Limit(name="kind:crawl", keyed=True).record("x")
        account = {"rate": {"cooling": {"x": [[4e9, cooling]]}}}
        changes = Changes(answer=None, records={name: account})
        crawler.store(store.apply([name], lambda _known, _now: changes), store)

    assert limited() == []
    hold(9)
    assert limited() == [], "one of ten is left"
    hold(10)
    (told,) = limited()
    assert told.startswith("limit kind:crawl (10/s) is used up for key x")
    text = crawler.ok("jobs", "show", job_id, "--app", "shop:app").out
    assert "windlass limits set kind:crawl --rate N/s" in " ".join(text.split())
    crawler.ok("limits", "set", "kind:crawl", "--rate", "20/s", "--app", "shop:app")
    assert limited() == []
