"""`windlass jobs`: what is listed and shown, and what may be retried and cancelled."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from msgspec.structs import replace
from rich.console import Console

from windlass.cli.output.job_details import job_report
from windlass.core.jobs.job import Attempt, ErrorInfo
from windlass.core.jobs.states import State
from windlass.core.payloads.redaction import Redaction

if TYPE_CHECKING:
    from tests.cli.conftest import Shell

NOBODY = UUID("0197f3a2-6c1e-7b60-8000-3f1d2c4b5a69")


def listed(shell: Shell, *args: object) -> list[str]:
    return [job["id"] for job in shell.ok("jobs", "list", "--json", *args).json["jobs"]]


def test_the_newest_job_is_listed_first_and_no_id_is_cut(shell: Shell) -> None:
    ids = shell.enqueue(count=3)
    said = shell.ok("jobs", "list")
    rows = said.out.splitlines()[2:]
    assert [row.split()[0] for row in rows] == [str(each) for each in reversed(ids)]
    assert said.out.splitlines()[0].split() == [
        *("id", "state", "kind", "queue", "attempt", "created", "what"),
    ]


def test_a_listing_can_be_filtered(shell: Shell) -> None:
    (mail,) = shell.enqueue("send_email", queue="mail")
    (later,) = shell.enqueue("send_email", due=timedelta(hours=1))
    (report,) = shell.enqueue("build_report")
    (running,) = shell.enqueue("resize")
    shell.start("resize", worker="w9")
    assert listed(shell, "--kind", "send_email") == [str(later), str(mail)]
    assert listed(shell, "--queue", "mail") == [str(mail)]
    assert listed(shell, "--state", "scheduled", "--state", "running") == [
        str(running),
        str(later),
    ]
    assert listed(shell, "--worker", "w9") == [str(running)]
    assert listed(shell, "--state", "pending", "--kind", "build_report") == [str(report)]


def test_a_listing_goes_on_where_the_page_before_ended(shell: Shell) -> None:
    ids = [str(each) for each in reversed(shell.enqueue(count=5))]
    page = shell.ok("jobs", "list", "--json", "--limit", 2).json
    assert [job["id"] for job in page["jobs"]] == ids[:2]
    assert f"--after {page['after']}" in shell.ok("jobs", "list", "--limit", 2).err
    rest = shell.ok("jobs", "list", "--json", "--after", page["after"]).json
    assert [job["id"] for job in rest["jobs"]] == ids[2:]
    assert rest["after"] is None


def test_an_empty_listing_says_so_beside_stdout(shop: Shell) -> None:
    said = shop.ok("jobs", "list")
    assert (said.out, said.err) == ("", "no jobs\n")
    assert shop.ok("jobs", "list", "--json").json == {
        "jobs": [],
        "after": None,
        "searched_to": None,
    }


def test_a_running_job_is_shown_with_its_holder_its_payload_and_its_progress(shell: Shell) -> None:
    (job_id,) = shell.enqueue(payload='{"to": "ä@example.org"}'.encode())
    shell.start(worker="w9")
    text = shell.ok("jobs", "show", job_id).out
    for part in (str(job_id), "running", "held by", "w9", "40%  half way", '"to": "ä@example.org"'):
        assert part in text
    facts = shell.ok("jobs", "show", job_id, "--json").json
    assert facts["worker"] == "w9"
    assert facts["progress"] == {"fraction": 0.4, "message": "half way"}
    assert facts["payload"] == {"to": "ä@example.org"}
    assert facts["started_at"].endswith("+00:00")
    assert "token" not in facts


def test_a_dead_job_is_shown_with_every_attempt_its_error_and_its_traceback(shell: Shell) -> None:
    (job_id,) = shell.dead(message="no such user")
    text = shell.ok("jobs", "show", job_id).out
    for part in (
        "dead",
        "gave up after 1 failure",
        "1. failed (permanent) after 5ms",
        "line no such user",
    ):
        assert part in text
    (attempt,) = shell.ok("jobs", "show", job_id, "--json").json["history"]
    assert (attempt["error"]["message"], attempt["error"]["class"]) == ("no such user", "permanent")
    assert attempt["duration"] == 0.005


def test_a_listing_and_a_job_have_keys_that_scripts_can_rely_on(shell: Shell) -> None:
    (job_id,) = shell.dead()
    summary = {
        *("id", "kind", "queue", "priority", "state", "created_at", "due_at", "started_at"),
        *("finished_at", "attempt", "failures", "crashes", "worker", "reason", "error"),
    }
    assert set(shell.ok("jobs", "list", "--json").json["jobs"][0]) == summary
    assert set(shell.ok("jobs", "show", job_id, "--json").json) == summary | {
        *("expires_at", "max_retries", "timeout", "unique_key", "key", "headers", "waiting_for"),
        *("flow", "tags"),
        *("cancel_requested", "progress", "payload", "result", "history", "reasons"),
        "actions",
        *("steps", "saga"),
    }


@pytest.mark.parametrize("payload", [b"not json", b"\xff\xfe", b"NaN", b'"\\ud800"', b""])
def test_a_payload_that_somebody_else_broke_is_still_shown(shell: Shell, payload: bytes) -> None:
    (job_id,) = shell.enqueue(payload=b"{}")
    db = sqlite3.connect(shell.file)
    with db:
        db.execute("UPDATE jobs SET payload = ?", (payload.decode("latin-1"),))
    db.close()
    shell.ok("jobs", "show", job_id)
    assert "payload" in shell.ok("jobs", "show", job_id, "--json").json


def test_text_from_outside_is_shown_inert_and_its_markup_as_it_stands(shell: Shell) -> None:
    (job_id,) = shell.dead("[red]k[/red]", message="\x1b[31mred\u202e\nfake line [bold]")
    for args in (("jobs", "list"), ("dead", "list"), ("jobs", "show", job_id)):
        text = shell.ok(*args).out
        assert "[red]k[/red]" in text
        assert "\\x1b[31mred\\u202e" in text
        assert "\x1b" not in text
        assert "\u202e" not in text
    rows = shell.ok("dead", "list").out.splitlines()
    assert len(rows) == 3


@pytest.mark.parametrize("outcome", ["suspected", "lost", "lost with its host", "not begun"])
def test_an_attempt_that_cost_nothing_says_so_and_is_not_red(shell: Shell, outcome: str) -> None:
    shell.enqueue()
    (job,) = shell.start()
    error = ErrorInfo(type="Crashed", message="its process died of SIGSEGV")
    attempt = Attempt(
        number=1,
        worker="w1",
        started_at=job.started_at,
        duration=timedelta(0),
        outcome=outcome,
        error=error,
    )
    console = Console(force_terminal=True, color_system="standard", width=200)
    with console.capture() as captured:
        console.print(job_report(replace(job, history=(attempt,)), job.created_at))
    shown = captured.get()
    assert f"\x1b[33m{outcome}\x1b[0m\x1b[33m, not charged\x1b[0m" in shown
    assert "\x1b[31m" not in shown


@pytest.mark.parametrize("command", ["show", "retry", "cancel"])
def test_an_unknown_id_is_reported(shop: Shell, command: str) -> None:
    shop("jobs", command, NOBODY).refused(f"no job has the id {NOBODY}")


def test_retry_makes_a_scheduled_job_due_and_redrives_a_dead_one(shell: Shell) -> None:
    (dead,) = shell.dead()
    (later,) = shell.enqueue(due=timedelta(hours=1))
    said = shell.ok("jobs", "retry", later, dead)
    assert said.out == f"{later}  pending\n{dead}  pending\n"
    assert shell.job(dead).failures == 0
    assert shell.job(later).state is State.PENDING


def test_a_job_that_cannot_be_moved_does_not_block_the_others(shell: Shell) -> None:
    (pending,) = shell.enqueue()
    (later,) = shell.enqueue(due=timedelta(hours=1))
    said = shell("jobs", "retry", pending, NOBODY, later, later, "--json")
    assert said.code == 1
    assert [job["id"] for job in said.json["jobs"]] == [str(later)]
    assert [each["id"] for each in said.json["refused"]] == [str(pending), str(NOBODY)]
    assert "is pending" in said.err


def test_a_retry_that_is_refused_says_what_the_state_means_and_what_to_do(shell: Shell) -> None:
    (running,) = shell.enqueue("resize")
    shell.start("resize")
    (pending, cancelled) = shell.enqueue(count=2)
    shell.ok("jobs", "cancel", cancelled)
    for job_id, remedy in {
        pending: f"it already waits for a worker; see what holds it back: windlass why {pending}",
        running: f"it has already started; see how far it is: windlass why {running}",
        cancelled: "a cancelled job does not run again; enqueue a new job",
    }.items():
        said = shell("jobs", "retry", job_id, "--json")
        assert remedy in " ".join(said.err.split())
        assert "only scheduled" not in said.err, "the command gives dead jobs a new life, too"


def test_cancel_ends_a_waiting_job_and_asks_a_running_one(shell: Shell) -> None:
    (running,) = shell.enqueue("resize")
    shell.start("resize")
    (pending,) = shell.enqueue()
    said = shell.ok("jobs", "cancel", pending, running, "--reason", "not needed")
    assert said.out == f"{pending}  cancelled\n{running}  running (cancellation requested)\n"
    assert shell.job(pending).reason == "not needed"
    assert shell.job(running).cancel_requested


def test_a_finished_job_cannot_be_cancelled(shell: Shell) -> None:
    (job_id,) = shell.dead()
    shell("jobs", "cancel", job_id).refused("is dead")


def test_a_listing_masks_only_what_it_shows(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: seconds spent on masking payloads and histories that nobody sees."""
    shell.dead(message="password=hunter2 refused")
    masked: list[str] = []
    usual = Redaction.text

    def text(self: Redaction, text: str, **options: Any) -> str:
        masked.append(text)
        return usual(self, text, **options)

    monkeypatch.setattr(Redaction, "text", text)
    said = shell.ok("jobs", "list")
    assert "hunter2" not in said.out
    assert sorted(masked) == ["gave up after 1 failure", "half way", "password=hunter2 refused"]
