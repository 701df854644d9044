"""How many claimed jobs are worth having in hand: as many as can begin within 50 ms."""

from __future__ import annotations

import pytest

from windlass.worker.engine.start_pace import StartPace


@pytest.fixture(autouse=True)
def calm() -> None:
    """Keep the limit of a real worker."""


def begin(pace: StartPace, count: int, each: float, *, at: float = 100.0) -> tuple[int, float]:
    """Let a batch arrive, whose runs take so long each; return how many began, and when it is."""
    begun, now = 0, at
    for _ in range(count):
        if pace.may_begin(at, now):
            begun += 1
            now += each
    pace.rest(now)
    return begun, now


def test_before_anything_is_known_a_usual_batch_is_taken() -> None:
    assert 100 <= StartPace().bite <= 500


@pytest.mark.parametrize("each", [1e-6, 20e-6, 400e-6])
def test_quick_jobs_all_begin(each: float) -> None:
    pace = StartPace()
    assert begin(pace, 100, each)[0] == 100
    assert pace.bite >= 100


@pytest.mark.parametrize(("each", "begun"), [(0.0011, 46), (0.011, 5), (0.06, 1), (5.0, 1)])
def test_jobs_that_cannot_begin_soon_are_given_back(each: float, begun: int) -> None:
    assert begin(StartPace(), 100, each)[0] == begun


@pytest.mark.parametrize("each", [0.0011, 0.003, 0.011, 0.06, 5.0])
def test_after_one_batch_with_late_ones_the_next_has_none(each: float) -> None:
    pace = StartPace()
    _, now = begin(pace, 100, each)
    assert pace.bite <= max(1, 0.02 / each), "a surprise makes careful"
    for _ in range(100):
        bite = pace.bite
        begun, now = begin(pace, bite, each, at=now + 0.001)
        assert begun == bite
    most = max(1, int(0.04 / each))
    assert pace.bite in (most, max(1, most - 1))


def test_one_always_begins_however_late_it_is() -> None:
    """Prevents: a loop that something else keeps busy, on which nothing would ever start."""
    pace = StartPace()
    for arrived in range(10):
        assert pace.may_begin(arrived, arrived + 0.9)
        assert not pace.may_begin(arrived, arrived + 0.91)


def test_one_stall_is_forgotten_soon() -> None:
    pace = StartPace()
    begin(pace, 100, 20e-6, at=1.0)
    before = pace.bite
    assert pace.may_begin(2.0, 2.0)
    pace.rest(4.0)
    assert pace.bite == 1
    for second in range(5, 25):
        begin(pace, pace.bite, 20e-6, at=second)
    assert pace.bite >= before / 4


def test_time_in_which_nothing_waited_says_nothing() -> None:
    pace = StartPace()
    for second in range(1, 100):
        assert pace.may_begin(second, second + 0.01)
        pace.rest(second + 0.01)
    assert pace.bite >= 10_000
