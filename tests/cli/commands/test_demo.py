"""`windlass demo`: it adds up, it says so when it does not, and it leaves nothing behind."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.support.screens import Glass, python_in
from windlass.core.jobs.ids import job_id
from windlass.core.jobs.job import Attempt, Job
from windlass.core.jobs.states import State
from windlass.demo.load import drafts
from windlass.demo.tally import complaints, tally

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def job(number: int, kind: str, state: State, *outcomes: str, attempts: int | None = None) -> Job:
    history = tuple(
        Attempt(number=n, worker="w", started_at=NOW, duration=timedelta(0), outcome=outcome)
        for n, outcome in enumerate(outcomes, 1)
    )
    runs = len(outcomes) + (state is State.COMPLETED)
    return Job(
        id=job_id(number, number),
        kind=kind,
        queue="q",
        priority=0,
        key="",
        state=state,
        payload=b"{}",
        due_at=NOW,
        created_at=NOW,
        started_at=NOW,
        finished_at=NOW + timedelta(milliseconds=number),
        attempt=runs if attempts is None else attempts,
        history=history,
    )


GOOD = [
    job(1, "fast", State.COMPLETED),
    job(3, "fast", State.COMPLETED, "failed", "snoozed"),
    job(5, "poison", State.DEAD, "failed", "failed"),
]


def test_the_books_of_each_kind_add_up() -> None:
    fast, poison = tally({"fast": 2, "poison": 1}, GOOD)
    assert (fast.enqueued, fast.runs, fast.completed) == (2, 4, 2)
    assert (fast.retried, fast.snoozed, fast.dead) == (1, 1, 0)
    assert (poison.runs, poison.completed, poison.retried, poison.dead) == (2, 0, 1, 1)
    assert fast.typical == timedelta(milliseconds=2)
    assert poison.typical is None
    assert complaints([fast, poison], poison="poison") == []


@pytest.mark.parametrize(
    ("jobs", "told"),
    [
        (GOOD[1:], "fast: 2 enqueued, 1 found"),
        ([*GOOD[:2], job(5, "poison", State.COMPLETED)], "poison: 0 dead instead of 1"),
        ([*GOOD[1:], job(1, "fast", State.DEAD, "failed")], "fast: 1 dead instead of 0"),
        ([*GOOD[1:], job(1, "fast", State.PENDING)], "fast: 2 enqueued, 2 found, 1 completed"),
        ([*GOOD[1:], job(1, "fast", State.COMPLETED, attempts=0)], "fast: 3 runs, 4 outcomes"),
        ([*GOOD, job(9, "stray", State.COMPLETED)], "stray: 0 enqueued, 1 found"),
    ],
)
def test_figures_that_do_not_add_up_are_reported(jobs: list[Job], told: str) -> None:
    books = tally({"fast": 2, "poison": 1}, jobs)
    assert any(each.startswith(told) for each in complaints(books, poison="poison"))


@pytest.mark.parametrize("count", [20, 100, 1000])
def test_so_many_jobs_are_enqueued_as_were_asked_for(count: int) -> None:
    kinds = [draft.job.kind for draft in drafts(count)]
    assert len(kinds) == count
    assert {"daily_digest", "build_report", "import_feed", "send_email"} <= set(kinds)


def test_the_demo_runs_adds_up_and_leaves_nothing_behind(tmp_path: Path) -> None:
    # A user's own settings must not get in its way.
    settings = {"WINDLASS_QUEUES": "none-of-these", "MAX_RETRIES": "0", "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "windlass", "demo", "--jobs", "40"],
        env={**os.environ, **settings},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    for part in ("40 of 40 done", "returned the first job", "It adds up", "is not a feed"):
        assert part in done.stdout
    totals = next(line for line in done.stdout.splitlines() if line.startswith("total"))
    _, enqueued, runs, completed = totals.split()[:4]
    assert (enqueued, completed) == ("40", "39")
    assert int(runs) >= 46, "more on a busy machine, where jobs are given back unbegun"
    next_lines = done.stdout.partition("Commands to try next:")[2]
    assert next_lines.count("\n") >= 4
    assert "windlass top" in next_lines
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_stopped_cleans_up(tmp_path: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "windlass", "demo", "--jobs", "20000"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if " of 20,000 done" in line:
            break
    process.send_signal(number)
    rest, _ = process.communicate(timeout=40)
    assert process.returncode == 130
    assert "nothing is left behind" in rest
    assert list(tmp_path.iterdir()) == []


def test_a_demo_is_watched_from_another_terminal_by_the_command_that_it_prints(
    tmp_path: Path, glasses: list[Glass]
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "windlass", "demo", "--jobs", "20000"],
        env={**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "40"},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        words = shlex.split(next(line for line in process.stdout if " top --url " in line))
        watch = python_in(tmp_path, "-m", "windlass", *words[words.index("top") :])
        glasses.append(glass := Glass(watch, columns=120, lines=40))
        glass.sees("send_email", "running")
        glass.type("q")
        glass.until(glass.has_ended)
    finally:
        process.terminate()
        process.communicate(timeout=40)
    assert glass.code == 0


def test_the_page_of_a_demo_stays_until_it_is_stopped(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "windlass", "demo", "--jobs", "20", "--web", "--port", "0"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if "stays until" in line:
                break
        address = re.search(r"http://\S+/", said)
        assert address is not None
        with urlopen(f"{address[0]}jobs?q=state:dead", timeout=100) as page:
            assert "import_feed" in page.read().decode()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 0
    finally:
        process.kill()
    assert list(tmp_path.iterdir()) == []
