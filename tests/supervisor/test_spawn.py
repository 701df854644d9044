"""The start of a worker's process."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from windlass.cli.processes.banner import Banner
from windlass.cli.processes.supervisor_process import supervise
from windlass.cli.processes.worker_command import WorkerCommand
from windlass.core.values.ranges import Bounds
from windlass.process.exits.black_box import BlackBox
from windlass.supervisor import spawn, worker_process
from windlass.supervisor.spawn import Spawned
from windlass.supervisor.supervisor import Supervisor

COMMAND = ["worker", "no_such_module_at_all:app"]


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def raise_os_error(*_: Any) -> Any:
    raise OSError("too many open files")


@pytest.mark.parametrize("part", ["_start", "shared_file"])
def test_a_process_that_cannot_be_started_leaves_no_descriptor_open(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents a supervisor that tries again and again from running out of descriptors."""
    monkeypatch.setattr(spawn, part, raise_os_error)
    before = descriptors()
    for _ in range(3):
        with pytest.raises(OSError, match="too many open files"):
            Spawned(COMMAND)
    assert descriptors() == before


def supervisor(first: Spawned | None = None) -> Supervisor:
    return Supervisor(
        COMMAND,
        processes=Bounds(least=1, most=1),
        announcer=Banner("no_such_module_at_all:app"),
        first=first,
    )


def test_a_process_that_cannot_be_taken_over_is_killed_and_leaves_no_descriptor_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spawned: list[Spawned] = []

    def start(command: list[str]) -> Spawned:
        spawned.append(Spawned(command))
        return spawned[-1]

    async def main() -> None:
        monkeypatch.setattr("windlass.supervisor.supervisor.Spawned", start)
        monkeypatch.setattr(worker_process, "BlackBox", raise_os_error)
        with pytest.raises(OSError, match="too many open files"):
            supervisor().start_one()

    before = descriptors()
    asyncio.run(main())
    assert descriptors() == before
    (process,) = (each.process for each in spawned)
    assert process.returncode is not None, "it was killed, and waited for"


def test_a_first_worker_that_cannot_be_taken_over_is_abandoned_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Prevents: the second time closes descriptors of others, and hides the error."""
    monkeypatch.setattr(worker_process, "BlackBox", raise_os_error)
    command = WorkerCommand("no_such_module_at_all:app", {}, "", burst=False, debug=False)
    before = descriptors()
    with pytest.raises(OSError, match="too many open files"):
        supervise(command, reload=False, first=Spawned(COMMAND))
    assert descriptors() == before


def test_a_first_worker_that_ended_before_its_supervisor_ran_is_noticed() -> None:
    """Prevents a supervisor that waits for ever for the end of a process that has ended."""
    first = Spawned(COMMAND)
    first.process.kill()
    os.waitid(os.P_PID, first.process.pid, os.WEXITED | os.WNOWAIT)  # Left for the supervisor.

    async def main() -> int:
        return await asyncio.wait_for(supervisor(first).run(), 60)

    assert asyncio.run(main()) != 0
    assert first.process.returncode is not None


def test_a_file_that_is_shared_is_filled_once(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "box", os.O_RDWR | os.O_CREAT)
    box = BlackBox(fd)
    box.write("a line", "job")
    assert "a line" in BlackBox(fd).read("job")
    box.close()
