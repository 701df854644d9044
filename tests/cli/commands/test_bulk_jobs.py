"""`windlass jobs cancel` and `purge` of many jobs: found, counted, confirmed, then moved."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from windlass.app.control import bulk
from windlass.cli.actions import bulk_moves
from windlass.core.jobs.states import State

if TYPE_CHECKING:
    from tests.cli.conftest import Shell


def age(shell: Shell, jobs: list[UUID], hours: int) -> None:
    """Let jobs have been enqueued that long ago."""
    db = sqlite3.connect(shell.file)
    with db:
        for job in jobs:
            db.execute(
                "UPDATE jobs SET created_at = created_at - ? WHERE id = ?",
                (hours * 3_600_000_000, str(job)),
            )
    db.close()


def listed(shell: Shell, *args: object) -> set[str]:
    return {job["id"] for job in shell.ok("jobs", "list", "--json", *args).json["jobs"]}


def test_jobs_are_listed_by_age_error_and_group(shell: Shell) -> None:
    refused = shell.dead("a", message="user 1 is unknown")
    shell.dead("a", message="no")
    old = shell.enqueue("b", queue="mail", count=2)
    age(shell, old, 2)
    assert listed(shell, "--older-than", "1h") == {str(job) for job in old}
    assert listed(shell, "--newer-than", "1h", "--error", "is unknown") == {str(refused[0])}
    group = next(
        each["group"]
        for each in shell.ok("dead", "groups", "--json").json["groups"]
        if "unknown" in each["error"]
    )
    assert listed(shell, "--group", group) == {str(refused[0])}
    assert listed(shell, "--key", "acme") == set()
    shell("jobs", "list", "--older-than", "soon").refused("'soon'", code=2)


def test_many_jobs_are_counted_then_cancelled_in_chunks(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "CHUNK", 2)
    monkeypatch.setattr(bulk_moves, "CHUNK", 2)
    old = shell.enqueue("send_email", queue="mail", count=5)
    age(shell, old, 2)
    later = shell.enqueue("send_email", queue="mail", due=timedelta(hours=1))
    new = shell.enqueue("send_email", queue="mail")
    other = shell.enqueue("other", queue="mail")
    which = ("--kind", "send_email", "--queue", "mail", "--state", "pending", "--older-than", "1h")
    said = shell.ok("jobs", "cancel", *which, "--dry-run")
    assert said.out == "5 jobs would be cancelled\n"
    assert shell.ok("jobs", "cancel", *which, "--limit", "1", "--yes").out == "1 job cancelled\n"
    said = shell.ok("jobs", "cancel", *which, "--yes", "--json", "--reason", "not needed")
    assert said.json == {"matched": 4, "cancelled": 4, "dry_run": False, "refused": []}
    assert shell.states(old) == {State.CANCELLED}
    assert shell.job(old[4]).reason == "not needed"
    assert shell.states([*new, *other]) == {State.PENDING}
    assert shell.states(later) == {State.SCHEDULED}


def test_cancel_asks_how_many_and_takes_no_for_an_answer(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_moves, "can_ask", lambda: True)
    jobs = shell.enqueue(count=2)
    said = shell("jobs", "cancel", "--all", stdin="n\n")
    assert said.code == 1
    assert "Cancel 2 jobs?" in said.err
    assert "nothing was cancelled" in said.err
    assert shell.states(jobs) == {State.PENDING}
    assert "2 jobs cancelled\n" in shell.ok("jobs", "cancel", "--all", stdin="y\n").out


@pytest.mark.parametrize("verb", ["cancel", "purge"])
def test_nothing_happens_in_bulk_where_nobody_can_be_asked(shell: Shell, verb: str) -> None:
    (job,) = shell.enqueue()
    (dead,) = shell.dead("b")
    shell("jobs", verb, "--all").refused(f"{verb} cannot be undone", "--yes", code=2)
    assert shell.states([job]) == {State.PENDING}
    assert shell.states([dead]) == {State.DEAD}


@pytest.mark.parametrize("verb", ["cancel", "purge"])
@pytest.mark.parametrize(
    "args",
    [
        (),
        ("--yes",),
        ("--limit", "5", "--yes"),
        ("--all", "--kind", "a", "--yes"),
        ("0197f3a2", "--all", "--yes"),
        ("0197f3a2", "--older-than", "1h", "--yes"),
        ("0197f3a2", "--limit", "1", "--yes"),
        ("--older-than", "soon", "--yes"),
    ],
    ids=" ".join,
)
def test_which_jobs_are_meant_must_be_said_in_one_way(
    shell: Shell, verb: str, args: tuple[str, ...]
) -> None:
    (job,) = shell.enqueue()
    (dead,) = shell.dead("b")
    shell("jobs", verb, *args).refused(code=2)
    assert shell.states([job]) == {State.PENDING}
    assert shell.states([dead]) == {State.DEAD}


def test_a_state_that_a_verb_does_not_work_from_is_wrong_usage(shell: Shell) -> None:
    shell.enqueue()
    shell("jobs", "cancel", "--state", "dead", "--yes").refused("for cancel, got 'dead'", code=2)
    shell("jobs", "purge", "--state", "pending", "--yes").refused("got 'pending'", code=2)


def test_ended_jobs_are_purged_and_no_others(shell: Shell) -> None:
    waiting = shell.enqueue(count=2)
    cancelled = shell.enqueue("other", count=2)
    shell.ok("jobs", "cancel", "--kind", "other", "--yes")
    dead = shell.dead("third")
    assert shell.ok("jobs", "purge", "--all", "--dry-run").out == "3 jobs would be purged\n"
    said = shell.ok("jobs", "purge", "--state", "cancelled", "--yes", "--json")
    assert said.json == {"matched": 2, "purged": 2, "dry_run": False, "refused": []}
    assert listed(shell) == {str(job) for job in (*waiting, *dead)}
    assert cancelled
    assert shell.ok("jobs", "purge", "--kind", "third", "--yes").out == "1 job purged\n"
    assert listed(shell) == {str(job) for job in waiting}


def test_a_job_that_has_not_ended_is_not_purged_by_its_id(shell: Shell) -> None:
    (job,) = shell.enqueue()
    said = shell("jobs", "purge", job, "--yes")
    said.refused(f"job {job} is pending, not completed or dead or cancelled")
    assert shell.states([job]) == {State.PENDING}
