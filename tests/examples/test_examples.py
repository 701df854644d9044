"""Every example runs as its README says, in an empty directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_thumbnails_are_made(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.thumbnails"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    cat, flaky, hen, dead = done.stdout.splitlines()
    assert cat.startswith("cat.png: ")
    assert cat.endswith("@64")
    assert flaky.startswith("flaky.png: ")
    assert hen.startswith("hen.png: ")
    assert dead.startswith("dead: ")
    assert "is not a picture's address" in dead
