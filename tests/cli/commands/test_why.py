"""`windlass why`: the reason in words, the command that changes it, and the same for scripts."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

if TYPE_CHECKING:
    from tests.cli.conftest import Shell


def test_the_reason_comes_with_a_command_that_can_be_typed(shop: Shell) -> None:
    (job,) = shop.enqueue(queue="mail")
    shop.ok("queues", "pause", "mail")
    lines = shop.ok("why", job, "--app", "shop:app").out.splitlines()
    assert lines == [
        f"job {job}  pending  send_email in queue mail",
        "  · queue mail is paused",
        "    → windlass queues resume mail",
        "  · no worker is alive",
        "    → windlass worker MODULE:ATTR",
    ]
    shop.ok(*lines[2].split()[2:])
    assert "paused" not in shop.ok("why", job).out


def test_a_script_gets_the_facts(shell: Shell) -> None:
    (job,) = shell.enqueue(due=timedelta(hours=1))
    told = shell.ok("why", job, "--json").json
    assert told["job"]["id"] == str(job)
    first, *_ = told["reasons"]
    assert first["cause"] == "not due"
    assert first["until"] == told["job"]["due_at"]
    assert first["remedy"] == f"windlass jobs retry {job}"


def test_running_and_dead_jobs_are_shown(shell: Shell) -> None:
    (running,) = shell.enqueue("slow")
    shell.start("slow")
    assert "running on worker w1" in shell.ok("why", running).out
    (dead,) = shell.dead(message="no such address")
    out = shell.ok("why", dead).out
    assert "ValueError: no such address" in out
    assert f"windlass jobs retry {dead}" in out


def test_names_from_outside_cannot_write_to_the_terminal(shell: Shell) -> None:
    (job,) = shell.enqueue("a\x1b[31m\nb", queue="q\x1b]0;x\x07")
    shell.register(kinds=("a",))
    out = shell.ok("why", job).out
    assert "\x1b" not in out
    assert "\x07" not in out


def test_without_handlers_it_is_said_what_is_not_known(shop: Shell) -> None:
    (job,) = shop.enqueue()
    assert "--app MODULE:ATTR" in shop.ok("why", job, "--url", f"sqlite:///{shop.file}").err
    assert shop.ok("why", job, "--app", "shop:app").err == ""


def test_an_app_without_the_handler_is_named(shop: Shell) -> None:
    """Prevents: --app is asked for although it was given, and a worker that would not help."""
    (job,) = shop.enqueue("unheard_of")
    said = shop.ok("why", job, "--app", "shop:app")
    assert "the app has no handler of kind unheard_of, and no live worker has one" in said.err


def test_a_job_that_is_not_there_is_refused(shop: Shell) -> None:
    shop("why", uuid4()).refused("no job")
