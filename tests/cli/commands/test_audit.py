"""`windlass audit`: what operators did, as the commands themselves have recorded it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from windlass.app.control import audit_reader as reading

if TYPE_CHECKING:
    from tests.cli.conftest import Shell


@pytest.fixture(autouse=True)
def _ada(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_ACTOR", "ada@host")


def listed(shell: Shell, *args: object) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = shell.ok("audit", "list", "--json", *args).json["entries"]
    return entries


def test_every_command_that_changes_something_leaves_an_entry(shop: Shell) -> None:
    job, other, third = (shop.enqueue()[0] for _ in range(3))
    (dead,) = shop.dead("other")
    shop.ok("jobs", "cancel", job, "--reason", "moot")
    shop.ok("jobs", "cancel", "--kind", "send_email", "--yes", "--reason", "all of them")
    shop.ok("jobs", "retry", dead)
    (dead,) = shop.dead("third")
    shop.ok("dead", "redrive", dead)
    shop.ok("jobs", "purge", job, "--yes")
    shop.ok("queues", "pause", "mail", "--reason", "INC-42")
    shop.ok("queues", "resume", "mail")
    shop.ok("limits", "set", "kind:crawl", "--rate", "20/s")
    shop.ok("limits", "reset", "kind:crawl")
    assert [
        (each["action"], each["subject"], each["count"]) for each in reversed(listed(shop))
    ] == [
        ("cancel", f"job:{job}", 1),
        ("cancel", "jobs", 2),
        ("redrive", listed(shop)[6]["subject"], 1),
        ("redrive", f"job:{dead}", 1),
        ("purge", f"job:{job}", 1),
        ("pause", "queue:mail", 0),
        ("resume", "queue:mail", 0),
        ("set", "limit:kind:crawl", 0),
        ("reset", "limit:kind:crawl", 0),
    ]
    assert {(each["by"], each["via"]) for each in listed(shop)} == {("ada@host", "cli")}
    reasons = [each["reason"] for each in reversed(listed(shop)) if each["reason"]]
    assert reasons == ["moot", "all of them", "INC-42"]
    assert shop.job(other).reason == shop.job(third).reason == "all of them"


def test_a_job_shows_what_operators_did_with_it(shop: Shell) -> None:
    (job,) = shop.dead()
    shop.ok("dead", "redrive", job, "--reason", "the gateway is back")
    shop.ok("jobs", "cancel", job)
    out = shop.ok("jobs", "show", job).out
    assert "actions of operators, newest first" in out
    assert "redrive by ada@host via cli: the gateway is back" in out
    actions = shop.ok("jobs", "show", job, "--json").json["actions"]
    assert [each["action"] for each in actions] == ["cancel", "redrive"]
    (other,) = shop.enqueue()
    assert "actions of operators" not in shop.ok("jobs", "show", other).out


def test_commands_that_only_look_leave_none(shop: Shell) -> None:
    (job,) = shop.enqueue()
    for command in (["jobs", "list"], ["jobs", "show", job], ["queues", "list"], ["doctor"]):
        shop(*command)
    shop.ok("jobs", "cancel", "--all", "--dry-run")
    assert listed(shop) == []
    assert "no entries" in shop.ok("audit", "list").err


def test_entries_are_selected(shop: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    (job,) = shop.enqueue()
    shop.ok("queues", "pause", "mail")
    monkeypatch.setenv("WINDLASS_ACTOR", "bob")
    shop.ok("jobs", "cancel", job)
    shop.ok("queues", "resume", "mail")
    assert [each["action"] for each in listed(shop, "--by", "ada")] == ["pause"]
    assert [each["action"] for each in listed(shop, "--job", str(job)[:18])] == ["cancel"]
    assert [each["action"] for each in listed(shop, "--subject", "queue")] == ["resume", "pause"]
    assert [each["action"] for each in listed(shop, "--action", "pause")] == ["pause"]
    assert len(listed(shop, "--since", "1h")) == 3
    assert listed(shop, "--since", "2999-01-01T00:00Z") == []
    assert listed(shop, "--job", uuid4()) == []
    shop("audit", "list", "--since", "soon").refused("'soon'", code=2)


def test_a_long_log_is_read_by_pages(shop: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    for queue in ("a", "b", "c"):
        shop.ok("queues", "pause", queue)
    said = shop.ok("audit", "list", "--limit", "2")
    assert "queue:c" in said.out
    assert "queue:a" not in said.out
    after = said.err.split("there are more: --after ")[1].strip()
    assert "queue:a" in shop.ok("audit", "list", "--after", after).out
    monkeypatch.setattr(reading, "_READ", 1)
    monkeypatch.setattr(reading, "_MAX_READ", 1)
    said = shop.ok("audit", "list", "--subject", "queue:a")
    assert "searched back to" in said.err
    assert "continue with: --after audit:" in said.err


def test_a_hostile_text_does_not_reach_the_terminal(shop: Shell) -> None:
    shop.ok("queues", "pause", "mail", "--reason", "\x1b[31mred\x1b[0m\nfake line")
    out = shop.ok("audit", "list").out
    assert "\x1b" not in out
    assert "\\x1b[31mred" in out
    assert out.count("\n") == 3, "a head, a line and an entry"
