"""Steps of the store's clock: which workers noticed the same one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from windlass.core.schedules.clock_step import Step

STEPPED = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
"""The last moment that the clock showed before it was set back by five seconds."""
SECOND = timedelta(seconds=1)
BACK = -5 * SECOND
FIRST = Step(by=BACK, at=STEPPED + BACK + SECOND)
"""Noticed after a second."""


@pytest.mark.parametrize("late", [1, 2, 60])
def test_workers_that_saw_the_clock_before_a_step_noticed_the_same_one(late: int) -> None:
    noticed = Step(by=BACK, at=STEPPED + BACK + late * SECOND)
    for seen in (STEPPED, STEPPED - 30 * SECOND):
        assert noticed.is_like(FIRST, seen)


def test_a_second_step_of_the_same_length_is_another_one() -> None:
    """Prevents: retries wait for the length of the second step, and lose their turn in a key."""
    seen = STEPPED + 55 * SECOND
    assert not Step(by=BACK, at=seen + BACK + SECOND).is_like(FIRST, seen)


def test_a_step_of_quite_another_length_is_another_one() -> None:
    assert not Step(by=-30 * SECOND, at=FIRST.at).is_like(FIRST, STEPPED)
