"""`windlass jobs show`: the steps of a job, what they returned, and what became of their undos."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from tests.cli.conftest import Shell
from windlass.core.jobs.job import Checkpoint, Saga
from windlass.core.jobs.states import State
from windlass.core.workflows.step_log import (
    Done,
    Entry,
    Failed,
    Slept,
    Started,
    UndoFailed,
    Undoing,
    Undone,
    Waited,
    written,
)
from windlass.store.sqlite import SqliteStore

STORY: list[Entry] = [
    Started(name="hotel"),
    Failed(name="hotel", error="OSError: away", seconds=1.5),
    Done(name="hotel", result=Raw(b'{"room": 7, "password": "hunter2"}'), seconds=0.25),
    Slept(name="sleep-1"),
    Waited(name="paid"),
    Started(name="flight"),
    Undoing(state=State.DEAD, reason="permanent error"),
    Undone(name="flight"),
    UndoFailed(name="hotel", error="ConnectionError: refused token=abc", failures=3, for_good=True),
]


def with_steps(shell: Shell, entries: list[str], saga: Saga | None) -> str:
    (job_id,) = shell.enqueue()
    (job,) = shell.start()
    assert job.token is not None
    checkpoint = Checkpoint(id=job_id, token=job.token, steps=tuple(entries), saga=saga)
    store = SqliteStore(shell.file)
    assert shell.store(store.checkpoint([checkpoint]), store) == [True]
    return str(job_id)


def test_the_steps_of_a_job_are_shown_with_what_was_and_was_not_undone(shell: Shell) -> None:
    job_id = with_steps(shell, [written(entry) for entry in STORY], Saga.UNDOING)
    text = shell.ok("jobs", "show", job_id).out
    hotel = '1. hotel  done after 250ms, 1 failure before → {"room": 7, "password": "***"}'
    for part in (
        f"{hotel}  · not undone, gave up after 3 failures",
        "ConnectionError: refused token=***",
        "2. sleep-1  slept",
        "3. paid  timed out",
        "4. flight  started, not finished  · undone",
    ):
        assert part in text
    assert "hunter2" not in text


def test_scripts_get_a_line_for_every_step(shell: Shell) -> None:
    job_id = with_steps(shell, [written(entry) for entry in STORY], Saga.UNDOING)
    facts = shell.ok("jobs", "show", job_id, "--json").json
    assert facts["saga"] == "undoing"
    assert [(step["name"], step["state"], step["undo"]) for step in facts["steps"]] == [
        ("hotel", "done", "not undone, gave up after 3 failures"),
        ("sleep-1", "slept", None),
        ("paid", "timed out", None),
        ("flight", "started, not finished", "undone"),
    ]
    assert facts["steps"][0]["result"] == {"room": 7, "password": "***"}
    assert facts["steps"][0]["failures"] == 1


def test_steps_with_an_undo_are_marked_before_they_are_undone(shell: Shell) -> None:
    job_id = with_steps(shell, [written(Started(name="hotel"))], Saga.READY)
    text = shell.ok("jobs", "show", job_id).out
    assert "hotel  started, not finished  · undone if the job fails for good" in text


def test_steps_of_a_newer_release_are_shown_as_they_are(shell: Shell) -> None:
    entry = msgspec.json.encode({"entry": "teleported", "name": "hotel"}).decode()
    job_id = with_steps(shell, [entry], None)
    assert "teleported" in shell.ok("jobs", "show", job_id).out
    assert "teleported" in str(shell.ok("jobs", "show", job_id, "--json").json["steps"])
