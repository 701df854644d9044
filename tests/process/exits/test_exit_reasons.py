"""Why a process ended, in words."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.core.jobs.settling import JOB
from windlass.core.jobs.job import Job
from windlass.core.jobs.outcomes import Released
from windlass.core.jobs.states import State
from windlass.process.exits.exit_reasons import OutOfMemory, describe_exit, transitions_after_crash


@pytest.mark.parametrize(
    ("code", "out_of_memory", "told"),
    [
        (0, False, "exited with code 0"),
        (3, False, "exited with code 3"),
        (-11, False, "died of SIGSEGV"),
        (-6, False, "died of SIGABRT"),
        (-9, True, "was killed by the kernel: out of memory (SIGKILL)"),
        (
            -9,
            False,
            "died of SIGKILL: killed by hand, or by the kernel when out of memory",
        ),
        (-11, True, "died of SIGSEGV"),
        (-63, False, "died of signal 63"),
    ],
)
def test_an_exit_code_is_described_in_words(code: int, out_of_memory: bool, told: str) -> None:
    assert describe_exit(code, out_of_memory=out_of_memory) == told


class Kernel:
    """A kernel that says in which control groups this process is, and counts in one of them."""

    def __init__(self, directory: Path, groups: str, counter: str) -> None:
        self._mine = directory / "cgroup"
        self._mine.write_text(groups)
        self._mount = directory / "mount"
        self._counter = self._mount / counter
        self._counter.parent.mkdir(parents=True)
        self.kills = 0
        self.kill(2)

    def kill(self, more: int = 1) -> None:
        self.kills += more
        self._counter.write_text(f"low 0\noom 9\noom_kill {self.kills}\noom_group_kill 7\n")

    def hide(self) -> None:
        self._counter.unlink()

    def watched(self) -> OutOfMemory:
        return OutOfMemory(self._mine, self._mount)


V2 = "0::/system.slice/shop.service\n"
V1 = "12:pids:/docker/f00\n7:cpu,memory:/docker/f00\n1:name=systemd:/docker/f00\n0::/docker/f00\n"


@pytest.mark.parametrize(
    ("groups", "counter"),
    [
        (V2, "system.slice/shop.service/memory.events"),
        ("0::/\n", "memory.events"),
        # What a container sees as the root, its host calls by another name.
        (V2, "memory.events"),
        (V1, "memory/docker/f00/memory.oom_control"),
        (V1, "memory/memory.oom_control"),
    ],
)
def test_the_count_of_ones_own_group_tells_whether_memory_ran_out(
    tmp_path: Path, groups: str, counter: str
) -> None:
    kernel = Kernel(tmp_path, groups, counter)
    memory = kernel.watched()
    assert not memory.struck(-9, now=0)
    kernel.kill()
    assert memory.struck(-9, now=1)
    assert not memory.struck(-9, now=1)


def test_oom_kills_in_another_cgroup_are_ignored(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, V2, "system.slice/shop.service/memory.events")
    everybody = tmp_path / "mount" / "memory.events"
    everybody.write_text("oom_kill 0\n")
    memory = kernel.watched()
    everybody.write_text("oom_kill 5\n")
    assert not memory.struck(-9, now=0)


def test_each_of_several_kills_explains_one_end(tmp_path: Path) -> None:
    """Prevents the first of two that were killed at once from taking the other's reason."""
    kernel = Kernel(tmp_path, V2, "memory.events")
    memory = kernel.watched()
    kernel.kill(2)
    assert [memory.struck(code, now=0) for code in (0, -9, -11, -9, -9)] == [
        *(False, True, False, True, False)
    ]


def test_a_kill_that_explained_nothing_is_forgotten(tmp_path: Path) -> None:
    """Prevents a handler's own subprocess from lending its reason to a SIGKILL an hour later."""
    kernel = Kernel(tmp_path, V2, "memory.events")
    memory = kernel.watched()
    kernel.kill()
    memory.look(now=0)
    assert not memory.struck(-9, now=3_600)


def test_without_a_count_nothing_is_claimed(tmp_path: Path) -> None:
    assert not OutOfMemory(tmp_path / "cgroup", tmp_path).struck(-9, now=0)
    kernel = Kernel(tmp_path, V2, "memory.events")
    memory = kernel.watched()
    kernel.hide()
    memory.look(now=0)
    kernel.kill(0)
    assert not memory.struck(-9, now=0)


def test_a_job_that_cannot_be_settled_holds_up_no_other_of_its_process() -> None:
    def outcome(job: Job) -> Released:
        if job is bad:
            raise LookupError("nobody knows")
        return Released(reason="gone")

    bad, good = replace(JOB), replace(JOB)
    moves = transitions_after_crash([bad, good], outcome)
    assert [move.state for move in moves] == [State.DEAD, State.PENDING]
