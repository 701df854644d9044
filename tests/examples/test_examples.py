"""Every example runs as its README says, in an empty directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(example: str, directory: Path) -> list[str]:
    """Run an example, and return the lines that it prints."""
    done = subprocess.run(
        [sys.executable, "-m", f"examples.{example}"],
        cwd=directory,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
            "WINDLASS_URL": f"sqlite:///{directory}/jobs.db",
        },
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    return done.stdout.splitlines()


def test_the_thumbnails_are_made(tmp_path: Path) -> None:
    cat, flaky, hen, dead = run("thumbnails", tmp_path)
    assert cat.startswith("cat.png: ")
    assert cat.endswith("@64")
    assert flaky.startswith("flaky.png: ")
    assert hen.startswith("hen.png: ")
    assert dead.startswith("dead: ")
    assert "is not a picture's address" in dead


def test_a_checkout_is_done_or_leaves_nothing_behind(tmp_path: Path) -> None:
    cup, piano, *books = run("checkout_saga", tmp_path)
    assert cup == "cup: 12 paid, parcel 17"
    assert piano == "piano: permanent error; undone: charge, reserve"
    lines = [line.strip() for line in books]
    assert [line for line in lines if "cup" in line] == ["cup: reserved", "cup: charged 12"]
    assert [line for line in lines if "piano" in line] == [
        "piano: reserved",
        "piano: charged 9000",
        "piano: refunded 9000",
        "piano: released",
    ]


def test_an_agent_pays_for_each_answer_once(tmp_path: Path) -> None:
    text, steps, calls = run("agent_pipeline", tmp_path)
    assert text == (
        "What are a windlass and its pawl? It hauls a load, and has a pawl. "
        "It keeps the load from slipping."
    )
    assert steps == "steps: plan, start the tools, written, verdict"
    # A plan, two definitions of which one was tried twice, and the answer.
    assert calls == "calls of the model: 5"


def test_time_starts_work(tmp_path: Path) -> None:
    lines = run("scheduler", tmp_path)
    assert lines[:5] == [
        "look_around: active",
        "limp: active",
        "report:acme: active",
        "report:globex: paused",
        "digest: active",
    ]
    # Seven in Berlin is six or five in London's winter or summer, and never on a weekend.
    days = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
    assert all(line.endswith(days) and line[10:12] in ("05", "06") for line in lines[5:8])
    assert lines[8:] == [
        "digested",
        "limped",
        "looked around",
        "reported to acme",
        "reported to globex",
    ]
