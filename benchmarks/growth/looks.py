"""Owns the commands with which people look at a store, each as a process of its own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import partial

from benchmarks.growth.stage import Measure, Sample, Stage
from benchmarks.program import ProgramFailed

COMMANDS = (
    "jobs list",
    "jobs list --state dead",
    "jobs list --state completed --queue queue_7",
    "stats",
    "doctor",
    "queues list",
)
_REFUSED = 2
"""The exit code of wrong usage; 1 is what `doctor` ends with if it finds a problem."""


def looks() -> Mapping[str, Measure]:
    """Return the measures by their names."""
    return {f"windlass {each}": partial(look, each) for each in COMMANDS}


async def look(command: str, stage: Stage) -> Sample:
    """Run a command, and return what it took with its start."""
    return await asyncio.to_thread(_look, command, stage)


def _look(command: str, stage: Stage) -> Sample:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WINDLASS_")}
    arguments = [sys.executable, "-m", "windlass", *command.split()]
    served, began = stage.server_cpu(), time.perf_counter()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            arguments, env={**kept, "WINDLASS_URL": stage.url}, stdout=said, stderr=said
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode >= _REFUSED:
            said.seek(0)
            raise ProgramFailed(f"windlass {command}: {said.read().decode()[-500:]}")
    server = stage.server_cpu() - served
    own = usage.ru_utime + usage.ru_stime
    return Sample(seconds=seconds, cpu=own + server, server=server)
