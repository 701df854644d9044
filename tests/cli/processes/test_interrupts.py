"""Ctrl-C while the command line is still being imported: it ends, without a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

INTERRUPTING = """
import os
import signal
import sys


class Interrupting:
    \"\"\"Presses Ctrl-C at the moment at which a module is imported.\"\"\"

    def find_spec(self, name, path, target=None):
        if name == os.environ["INTERRUPTED_AT"]:
            os.killpg(0, signal.SIGINT)


sys.meta_path.insert(0, Interrupting())
"""


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("windlass.cli.root_command", ["jobs", "list"]),
        ("windlass.cli.processes.supervisor_process", ["worker", "shop:app"]),
        ("windlass.cli.processes.worker_process", ["worker", "shop:app"]),
        ("shop", ["worker", "shop:app"]),
    ],
)
def test_an_interrupt_during_imports_prints_no_traceback(
    module: str, command: list[str], tmp_path: Path
) -> None:
    """Prevents a screen full of Python where somebody changed their mind."""
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTING)
    (tmp_path / "shop.py").write_text("from windlass import Windlass\n\napp = Windlass()\n")
    environ = {"PYTHONPATH": str(tmp_path), "INTERRUPTED_AT": module, "WINDLASS_METRICS_PORT": "0"}
    ended = subprocess.run(
        [sys.executable, "-m", "windlass", *command],
        cwd=tmp_path,
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        start_new_session=True,  # Its processes get the signal, and the test does not.
    )
    assert "Traceback" not in ended.stderr + ended.stdout
    assert ended.returncode != 0
