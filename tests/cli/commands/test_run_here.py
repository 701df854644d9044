"""`windlass jobs run --here` runs a job in this terminal, and records nothing of it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from windlass.core.jobs.states import State

if TYPE_CHECKING:
    from tests.cli.conftest import Shell

SHOP = """
import logging

from windlass import Context, Windlass

app = Windlass()


@app.job(name="send_email")
async def send(ctx: Context, to: str, password: str = "") -> str:
    await ctx.step("render", str, to)
    logging.getLogger("shop").warning("sending")
    ctx.progress(0.5, "half way")
    return deliver(to, password)


def deliver(to: str, password: str) -> str:
    if to == "nobody":
        raise ValueError("no such mailbox")
    return "sent"
"""


@pytest.fixture
def mail(shop: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    shop.write("shop.py", SHOP)
    monkeypatch.setenv("WINDLASS_APP", "shop:app")
    return shop


def test_a_run_shows_payload_result_steps_and_logs(mail: Shell) -> None:
    (job,) = mail.enqueue(payload=b'{"to": "ada", "password": "hunter2"}')
    before = mail.job(job)
    said = mail.ok("jobs", "run", str(job)[:-1], "--here")
    for part in ("completed after", "'to': 'ada'", "sent", "render", "done"):
        assert part in said.out
    assert "hunter2" not in said.out + said.err
    for part in ("sending", "progress 50% half way", "nothing was recorded"):
        assert part in said.err
    assert "would have recorded: completed" in said.err
    assert mail.job(job) == before


def test_the_document_has_nothing_that_a_handler_or_its_processes_print(mail: Shell) -> None:
    loud = SHOP.replace("import logging", "import logging, os").replace(
        "return deliver", "print('printed', flush=True); os.system('echo echoed'); return deliver"
    )
    mail.write("shop.py", loud)
    (job,) = mail.enqueue(payload=b'{"to": "ada"}')
    command = [sys.executable, "-m", "windlass", "jobs", "run", str(job), "--here", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert json.loads(done.stdout)["outcome"] == "completed"
    assert "printed" in done.stderr
    assert "echoed" in done.stderr


def test_a_failure_shows_the_whole_traceback_and_exits_with_1(mail: Shell) -> None:
    (job,) = mail.enqueue(payload=b'{"to": "nobody"}')
    said = mail("jobs", "run", job, "--here")
    assert said.code == 1
    for part in ("failed after", "in deliver", "in send", "ValueError: no such mailbox"):
        assert part in said.out
    assert "would have recorded: scheduled" in said.err
    document = mail("jobs", "run", job, "--here", "--json").json
    assert document["outcome"] == "failed"
    assert document["error"]["type"] == "ValueError"
    assert "in deliver" in document["error"]["traceback"]
    assert [each["name"] for each in document["steps"]] == ["render"]
    assert (document["recorded"], document["next"]["state"]) == (False, "scheduled")
    assert mail.job(job).state is State.PENDING


def test_the_debugger_opens_where_the_handler_raised(mail: Shell) -> None:
    (job,) = mail.enqueue(payload=b'{"to": "nobody"}')
    said = mail("jobs", "run", job, "--here", "--pdb", stdin="p to + '-seen'\nq\n")
    assert said.code == 1
    assert "'nobody-seen'" in said.out


def test_a_dead_job_may_be_run_and_one_that_runs_needs_a_confirmation(mail: Shell) -> None:
    (dead,) = mail.dead()
    assert mail("jobs", "run", dead, "--here").code == 0
    assert mail.job(dead).state is State.DEAD
    mail.enqueue(payload=b'{"to": "ada"}')
    (running,) = mail.start()
    mail("jobs", "run", running.id, "--here").refused("is running", "--yes")
    mail.ok("jobs", "run", running.id, "--here", "--yes")


def test_a_run_that_is_settled_is_recorded_and_the_job_is_taken(mail: Shell) -> None:
    (dead,) = mail.dead()
    said = mail.ok("jobs", "run", dead, "--here", "--settle")
    assert "recorded: completed" in said.err
    assert mail.job(dead).state is State.COMPLETED
    mail("jobs", "run", dead, "--here", "--settle", "--yes").refused("is completed")
    (job,) = mail.enqueue(payload=b'{"to": "nobody"}')
    document = mail("jobs", "run", job, "--here", "--settle", "--json").json
    assert (document["recorded"], document["next"]["state"]) == (True, "scheduled")
    assert mail.job(job).state is State.SCHEDULED


def test_here_must_be_given(mail: Shell) -> None:
    (job,) = mail.enqueue(payload=b'{"to": "ada"}')
    mail("jobs", "run", job).refused("--here", "windlass jobs retry", code=2)


def test_a_kind_without_a_handler_is_refused(mail: Shell) -> None:
    (job,) = mail.enqueue("gone")
    mail("jobs", "run", job, "--here").refused("gone")


def test_a_run_without_an_app_is_refused_with_the_option_that_names_one(
    mail: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job,) = mail.enqueue()
    monkeypatch.delenv("WINDLASS_APP")
    mail("jobs", "run", job, "--here").refused("'send_email'", "; add --app MODULE:ATTR")
