"""The `windlass` of the docs' shell says and does what the one that users have says and does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.docs.warm import warm_windlass

CALLS = ("--version", "jobs nonsense", "jobs list", "migrate", "jobs list --json")
"""Done, wrong usage, refused, and done again; each sees what the last one did."""


def said(program: str, directory: Path) -> list[tuple[int, str, str]]:
    directory.mkdir()
    environment = {**os.environ, "COLUMNS": "200", "WINDLASS_URL": "sqlite:///jobs.db"}

    def shown(text: str) -> str:
        return text.replace(str(directory), "")

    ran = [
        subprocess.run(
            [program, *call.split()],
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        for call in CALLS
    ]
    return [(each.returncode, shown(each.stdout), shown(each.stderr)) for each in ran]


def test_a_fork_answers_as_a_process_of_its_own_does(tmp_path: Path) -> None:
    real = said(str(Path(sys.executable).parent / "windlass"), tmp_path / "real")
    with warm_windlass(os.environ) as directory:
        warm = said(f"{directory}/windlass", tmp_path / "warm")
    assert warm == real
    assert [code for code, _, _ in real] == [0, 2, 1, 0, 0]
