"""A worker's process from the supervisor's side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from windlass.process.exits.begun_jobs import BegunJobs
from windlass.process.stats_board import StatsBoard
from windlass.supervisor import worker_process as module
from windlass.supervisor.worker_process import WorkerProcess


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def raise_os_error(*_: Any) -> Any:
    raise OSError("too many open files")


@pytest.mark.parametrize("part", ["start", "list", "board"])
def test_a_process_that_cannot_be_started_leaves_no_descriptor_open(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents a supervisor that tries again and again from running out of descriptors."""
    places = {
        "start": (module, "_start"),
        "list": (BegunJobs, "create"),
        "board": (StatsBoard, "create"),
    }
    monkeypatch.setattr(*places[part], raise_os_error)
    before = descriptors()
    for _ in range(3):
        with pytest.raises(OSError, match="too many open files"):
            WorkerProcess(["worker"])
    assert descriptors() == before
