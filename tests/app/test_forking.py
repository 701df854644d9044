"""A fork: both sides go on, and nothing that either side was told is stored gets lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, subprocess, sys
from windlass import Windlass

app = Windlass("sqlite:///jobs.db")

@app.job
async def note(n: int) -> None: ...

note.enqueue(0)
told, tell = os.pipe()
if os.fork():
    os.waitpid(-1, 0) if {parent_stays} else os._exit(0)
    sys.exit(0)
os.close(told)
look = [sys.executable, "-c", "import asyncio; from windlass import Windlass; "
        "app = Windlass('sqlite:///jobs.db'); asyncio.run(app.store.counts()); app.close()"]
for n in range(3):
    note.enqueue(n)
subprocess.run(look, check=True)
for n in range(20):
    note.enqueue(n)
app.close()
open("done", "w").close()
"""


@pytest.mark.parametrize("parent_stays", [True, False], ids=["parent stays", "parent ends"])
def test_jobs_enqueued_by_a_forked_child_are_visible_to_others(
    tmp_path: Path, parent_stays: bool
) -> None:
    """Prevents: a child that believes in locks which only its parent had, and writes for nobody."""
    program = PROGRAM.format(parent_stays=parent_stays)
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=60)
    script = (
        "import asyncio, pathlib, time; from windlass import Windlass\n"
        "while not pathlib.Path('done').exists(): time.sleep(0.01)\n"
        "app = Windlass('sqlite:///jobs.db')\n"
        "print(sum(each.count for each in asyncio.run(app.store.counts())))"
    )
    seen = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        check=True,
        timeout=60,
        capture_output=True,
        text=True,
    )
    assert seen.stdout.strip() == "24"
