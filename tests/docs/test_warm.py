"""The programs of the docs' shell say and do what those that users have say and do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

CALLS = ("--version", "jobs nonsense", "jobs list", "migrate", "jobs list --json")
"""Done, wrong usage, refused, and done again; each sees what the last one did."""
PROGRAM = """\
import atexit, os, sys, threading
atexit.register(print, "the end")
print(__name__, __file__, sys.argv, sys.path[0] == os.getcwd())
print(sys.prefix, sys.executable, os.environ["COLUMNS"])
import other
threading.Timer(0.1, print, ["late"]).start()
sys.exit(3)
"""
"""What it may rely on: who it is, its directory, and an end that waits for its threads."""
OTHER = "def fail() -> None: raise SystemExit('no')"
RUNS = (
    ("page.py", "an argument"),
    ("-c", "import sys; import other; print(sys.argv, sys.path[0], __name__); other.fail()"),
    ("-c", "import warnings; warnings.warn('it')"),
    ("-c", "import os; os.abort()"),
    ("-m", "page"),
)


def said(program: str, directory: Path, calls: Iterable[Sequence[str]]) -> list[tuple[int, str]]:
    directory.mkdir()
    (directory / "page.py").write_text(PROGRAM)
    (directory / "other.py").write_text(OTHER)
    environment = {
        **os.environ,
        "COLUMNS": "200",
        "PYTHONPATH": os.pathsep.join([str(directory), os.environ.get("PYTHONPATH", "")]),
        "PYTHONWARNINGS": "error",
        "WINDLASS_URL": "sqlite:///jobs.db",
    }
    ran = [
        subprocess.run(
            [program, *call],
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        for call in calls
    ]
    told = [(each.returncode % 256, f"{each.stdout}{last_line(each.stderr)}") for each in ran]
    return [(code, text.replace(str(directory), "")) for code, text in told]


def last_line(text: str) -> str:
    """Return what tells about an error; where it was raised is below our own calls."""
    return text[text.rstrip().rfind("\n") + 1 :]


@pytest.mark.parametrize(
    ("program", "calls", "codes"),
    [
        ("windlass", [call.split() for call in CALLS], [0, 2, 1, 0, 0]),
        ("python", RUNS, [3, 1, 1, 250, 3]),
    ],
    ids=["windlass", "python"],
)
def test_a_fork_answers_as_a_process_of_its_own_does(
    program: str, calls: list[Sequence[str]], codes: list[int], programs: str, tmp_path: Path
) -> None:
    real = said(str(Path(sys.executable).with_name(program)), tmp_path / "real", calls)
    warm = said(f"{programs}/{program}", tmp_path / "warm", calls)
    assert warm == real
    assert [code for code, _ in real] == codes
