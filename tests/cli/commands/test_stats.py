"""`windlass stats`: what a fleet does and needs, as its workers recorded it, on any terminal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from windlass.cli.output import console as show
from windlass.cli.output import numbers as figures

if TYPE_CHECKING:
    from tests.cli.conftest import Shell

SHOP = """
from windlass import Windlass

app = Windlass()


@app.job(queue="mail", max_retries=0)
async def send(to: str) -> None:
    if to.startswith("bad"):
        raise ValueError(f"nobody \\x1b[31m is called {to}, password=geheim")


@app.job(queue="files")
def scan(path: str) -> None: ...
"""


@pytest.fixture
def post(shell: Shell) -> Shell:
    """A shell in whose directory an app has some jobs that fail."""
    shell.write("shop.py", SHOP)
    shell.ok("migrate")
    for to in ("ada", "bad1", "bad2"):
        shell.ok("enqueue", "send", f'{{"to": "{to}"}}', "--app", "shop:app")
    return shell


def narrow(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """Let the output go to a terminal of a width."""
    made = show._console

    def console(file: Any) -> Console:
        found = made(file)
        found.width = width
        return found

    monkeypatch.setattr(show, "_console", console)


def test_before_any_worker_the_jobs_are_counted_and_the_rest_is_said_to_be_unknown(
    post: Shell,
) -> None:
    said = post.ok("stats")
    assert re.search(r"mail +3 ", said.out)
    assert "arrival, service, slots needed: known about 30 s after a worker has started" in said.err
    assert "empty in: mail: no worker serves it" in said.err
    told = post.ok("stats", "--json").json
    (queue,) = told["queues"]
    assert queue["jobs"] == {"pending": 3}
    assert queue["arrival_rate"] is None
    assert told["sample_age"] is None
    assert told["slots_needed"] is None


def test_a_reason_that_many_queues_have_is_one_line_that_names_three(shell: Shell) -> None:
    """Prevents a screen of lines that are all alike, just when all workers are gone."""
    shell.fill_queues(50)
    said = shell.ok("stats").err.splitlines()
    assert [line for line in said if "no worker serves it" in line] == [
        "empty in: q000, q001, q002 and 47 more: no worker serves it: it never becomes empty"
    ]
    shell.ok("queues", "pause", "q001")
    said = shell.ok("stats").err.splitlines()
    assert (
        "empty in: q000, q002, q003 and 46 more: no worker serves it: it never becomes empty"
        in said
    )
    assert "empty in: q001: it is paused: it never becomes empty" in said
    assert len(said) <= 5


def test_unknown_figures_are_reported_as_unknown(post: Shell) -> None:
    assert (
        "there is no queue mial; try: windlass queues list"
        in post.ok("stats", "--queue", "mial").err
    )
    assert "no run of kind sned in the last hour" in post.ok("stats", "--kind", "sned").err
    assert "nothing is known" not in post.ok("stats", "--queue", "mail").err


def test_the_queue_of_a_kind_that_waits_is_shown_before_the_kind_has_run(post: Shell) -> None:
    """Prevents `nothing waits` while jobs of the kind do."""
    said = post.ok("stats", "--kind", "send")
    assert "nothing waits" not in said.out
    assert re.search(r"mail +3 ", said.out)
    assert "nothing waits" in post.ok("stats", "--kind", "scan").out


def test_figures_of_real_workers_are_shown(post: Shell) -> None:
    post.ok("worker", "shop:app", "--burst")
    said = post.ok("stats")
    assert re.search(r"send +3 +2 +67%", said.out)
    (line,) = [line for line in said.out.splitlines() if "ValueError" in line]
    assert "nobody \\x1b[31m is called bad" in line
    assert "geheim" not in said.out
    assert "\x1b" not in said.out
    told = post.ok("stats", "--json").json
    (error,) = told["errors"]
    assert (error["count"], error["dead"], sum(error["history"])) == (2, 2, 2)
    (kind,) = told["kinds"]
    assert (kind["runs"], kind["completed"], kind["failed"]) == (3, 1, 2)
    assert set(kind["durations"]) == {"p50", "p95", "p99"}
    assert post.ok("dead", "redrive", "--group", error["group"], "--json").json["redriven"] == 2


def test_the_figures_can_be_narrowed(post: Shell) -> None:
    post.ok("enqueue", "scan", '{"path": "x"}', "--app", "shop:app")
    post.ok("worker", "shop:app", "--burst")
    both = post.ok("stats", "--json").json
    assert sorted(each["name"] for each in both["kinds"]) == ["scan", "send"]
    files = post.ok("stats", "--queue", "files", "--json").json
    assert [each["name"] for each in files["kinds"]] == ["scan"]
    assert files["errors"] == []
    send = post.ok("stats", "--kind", "send", "--json").json
    assert [each["name"] for each in send["queues"]] == ["mail"]
    assert len(send["errors"]) == 1


def test_an_empty_store_is_no_error(shell: Shell) -> None:
    shell.ok("migrate")
    said = shell.ok("stats")
    assert "nothing waits" in said.out
    assert "start one: windlass worker" in said.err


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_narrow_terminal_gets_what_fits(
    post: Shell, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    post.ok("worker", "shop:app", "--burst")
    narrow(monkeypatch, width)
    said = post.ok("stats")
    assert max(map(len, said.out.splitlines())) <= width
    assert ("runs, last hour" in said.out) == (width == 200)


@pytest.mark.parametrize(
    ("value", "told"),
    [(None, "?"), (0.0, "0"), (0.004, "0"), (0.25, "0.25"), (12.34, "12.3"), (1234.5, "1,234")],
)
def test_rates_are_written_as_briefly_as_they_can_be(value: float | None, told: str) -> None:
    assert figures.rate(value).plain == told


def test_the_age_of_what_a_worker_has_in_use_is_shown(shell: Shell) -> None:
    """Prevents `0 of 100 in use` beside ten jobs that run, without a word about its age."""
    shell.enqueue()
    shell.start()
    said = shell.ok("stats").out.splitlines()
    heads = next(line for line in said if line.startswith("worker  "))
    row = next(line for line in said if line.startswith("w1 "))
    assert " ago" in row[heads.index("seen") :]
