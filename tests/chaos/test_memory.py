"""The memory of workers: the first quarter of their time against the last."""

from __future__ import annotations

import os

import pytest

from windlass.chaos.observation import memory
from windlass.chaos.observation.memory import MemoryWatch, WorkerMemory


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """Give the bytes that processes use, to be changed."""
    found: dict[int, int] = {}
    monkeypatch.setattr(memory, "resident", lambda pid: found.get(pid, 0))
    return found


def test_quarters_are_those_of_the_time_that_a_process_lived(used: dict[int, int]) -> None:
    watch = MemoryWatch()
    for second in range(101):
        used[1] = 100 if second < 50 else 150
        if second == 60:
            used[2] = 70
        watch.look([1, 2], second)

    assert watch.figures() == (
        WorkerMemory(pid=1, seconds=100.0, first=100, last=150),
        WorkerMemory(pid=2, seconds=40.0, first=70, last=70),
    )
    assert [each.growth for each in watch.figures()] == [0.5, 0.0]


def test_one_moment_with_much_memory_is_not_growth(used: dict[int, int]) -> None:
    watch = MemoryWatch()
    for second in range(40):
        used[1] = 900 if second == 38 else 100
        watch.look([1], second)

    (figure,) = watch.figures()
    assert figure.last == 100


def test_a_process_that_was_seen_a_few_times_has_no_figures(used: dict[int, int]) -> None:
    watch = MemoryWatch()
    used[1] = 100
    for second in range(7):
        watch.look([1], second)

    assert watch.figures() == ()


def test_a_real_process_uses_memory() -> None:
    watch = MemoryWatch()
    for second in range(8):
        watch.look([os.getpid()], second)

    (figure,) = watch.figures()
    assert figure.first > 1_000_000
