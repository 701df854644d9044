"""Why a process ended, in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from windlass.runtime import postmortem
from windlass.runtime.postmortem import OutOfMemory, how_it_ended


@pytest.mark.parametrize(
    ("code", "out_of_memory", "told"),
    [
        (0, False, "exited with code 0"),
        (3, False, "exited with code 3"),
        (-11, False, "died of SIGSEGV"),
        (-6, False, "died of SIGABRT"),
        (-9, True, "was killed for want of memory (SIGKILL)"),
        (-9, False, "died of SIGKILL: killed by somebody, or by the kernel for want of memory"),
        (-11, True, "died of SIGSEGV"),
        (-63, False, "died of signal 63"),
    ],
)
def test_an_exit_code_is_told_in_words(code: int, out_of_memory: bool, told: str) -> None:
    assert how_it_ended(code, out_of_memory=out_of_memory) == told


def test_the_kernels_count_of_kills_tells_whether_memory_ran_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = tmp_path / "memory.events"
    monkeypatch.setattr(postmortem, "_CGROUP", (tmp_path / "missing", events))
    assert not OutOfMemory().struck()
    events.write_text("low 0\noom 4\noom_kill 2\n")
    memory = OutOfMemory()
    assert not memory.struck()
    events.write_text("low 0\noom 5\noom_kill 3\n")
    assert memory.struck()
    assert not memory.struck()
