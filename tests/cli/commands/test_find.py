"""`--find`: jobs are listed and moved by a search; a mistake in it is named with its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.commands.test_jobs import listed
from tests.cli.test_completion import completed
from windlass.cli.commands import jobs as command
from windlass.core.jobs.ids import made_at
from windlass.core.jobs.job import TAGS
from windlass.core.search.scan import Budget

if TYPE_CHECKING:
    from tests.cli.conftest import Shell


def test_jobs_are_listed_by_a_search(shell: Shell) -> None:
    (mail,) = shell.enqueue("send_email", queue="mail", payload=b'{"order": {"id": 42}}')
    (report,) = shell.enqueue("build_report", headers={TAGS: "vip"})
    assert listed(shell, "--find", "payload.order.id:42") == [str(mail)]
    assert listed(shell, "--find", "tag:vip state:pending") == [str(report)]
    assert listed(shell, "--find", "-kind:send_email since:1h") == [str(report)]
    assert listed(shell, "--find", "since:1h", "--kind", "send_email") == [str(mail)]
    assert listed(shell, "--find", str(mail)[-8:]) == [str(mail)]
    assert shell.ok("dead", "list", "--find", "since:1h").err == "no jobs\n"


def test_a_listing_that_its_budget_ended_says_how_far_it_came(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = shell.enqueue(count=5)
    monkeypatch.setattr(command, "_PATIENT", Budget(rows=2))
    said = shell.ok("jobs", "list", "--find", "kind:none")
    back_to = made_at(ids[3]).isoformat()
    assert said.err == f"none so far: searched back to {back_to}; to continue: --after {ids[3]}\n"
    page = shell.ok("jobs", "list", "--json", "--find", "kind:none").json
    assert page == {"jobs": [], "after": str(ids[3]), "searched_to": str(ids[3])}
    said = shell.ok("jobs", "list", "--after", ids[1], "--find", "kind:none")
    assert said.err == "no jobs\n"


def test_jobs_are_moved_by_a_search(shell: Shell) -> None:
    shell.enqueue("send_email", headers={TAGS: "vip"}, count=2)
    (kept,) = shell.enqueue("send_email")
    dry = shell.ok("jobs", "cancel", "--find", "tag:vip", "--dry-run").out
    assert dry == "2 jobs would be cancelled\n"
    assert shell.ok("jobs", "cancel", "--find", "tag:vip", "--yes").out == "2 jobs cancelled\n"
    assert shell.ok("jobs", "purge", "--find", "tag:vip", "--yes").out == "2 jobs purged\n"
    assert listed(shell) == [str(kept)]


@pytest.mark.parametrize("command", ["cancel", "purge"])
@pytest.mark.parametrize("search", ["", "  "])
def test_an_empty_search_moves_nothing(shell: Shell, command: str, search: str) -> None:
    (job,) = shell.enqueue()
    said = shell("jobs", command, "--find", search, "--yes")
    assert said.code == 2
    assert "--find must have a term, got none; --all selects every job" in said.err
    said = shell("dead", "purge", "--find", search, "--yes")
    assert said.code == 2
    assert listed(shell) == [str(job)]


def test_a_mistake_in_a_search_is_a_wrong_usage(shell: Shell) -> None:
    for words in (("jobs", "list"), ("dead", "list"), ("jobs", "cancel"), ("dead", "redrive")):
        said = shell(*words, "--find", "kind:a stat:dead")
        assert said.code == 2
        assert "did you mean state:?" in said.err
        assert "at character 8 of the search" in said.err
    said = shell("jobs", "cancel", "--find", "state:dead", "--yes")
    assert said.code == 2
    assert "states must be among" in said.err


def test_the_tags_of_a_job_are_enqueued_and_shown(shell: Shell) -> None:
    said = shell.ok("enqueue", "send_email", "{}", "--tag", "vip", "--tag", "eu", "--json")
    job = said.json["id"]
    assert shell.ok("jobs", "show", job, "--json").json["tags"] == ["vip", "eu"]
    assert "vip, eu" in shell.ok("jobs", "show", job).out
    assert shell("enqueue", "send_email", "{}", "--tag", "a,b").code == 2


def test_a_search_is_completed_from_recent_jobs(shell: Shell) -> None:
    shell.enqueue("send_email", queue="mail", headers={TAGS: "vip"})
    assert "kind:" in completed(shell, "jobs", "list", "--find", "ki")
    assert completed(shell, "jobs", "list", "--find", "kind:se") == ["kind:send_email"]
    assert completed(shell, "jobs", "list", "--find", "tag:") == ["tag:vip"]
