"""How a number that may vary is written and read."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.core.values.ranges import Bounds

numbers = st.integers(0, 10**6)


@pytest.mark.parametrize(
    ("raw", "least", "most"),
    [
        (8, 8, 8),
        ("8", 8, 8),
        (" 8 ", 8, 8),
        ("5..100", 5, 100),
        (" 5 .. 100 ", 5, 100),
        ("7..7", 7, 7),
        (Bounds(least=2, most=3), 2, 3),
    ],
)
def test_a_number_or_two_with_dots_between_them_are_bounds(
    raw: object, least: int, most: int
) -> None:
    assert Bounds.read(raw) == Bounds(least=least, most=most)


@pytest.mark.parametrize(
    "raw", ["", "many", "5..", "..5", "5...9", "5-9", "1.5", "-1", "1..2..3", "٣", None, True, 1.5]
)
def test_text_that_is_neither_a_number_nor_a_range_is_refused_with_the_remedy(raw: object) -> None:
    with pytest.raises(ValueError, match=r"write a whole number like 8, or a range like 5\.\.100$"):
        Bounds.read(raw)


@pytest.mark.parametrize("raw", ["100..5", -1])
def test_bounds_that_hold_no_number_are_refused(raw: object) -> None:
    with pytest.raises(ValueError, match="range must be ascending"):
        Bounds.read(raw)


@given(numbers, numbers)
def test_a_formatted_range_parses_back(one: int, other: int) -> None:
    bounds = Bounds(least=min(one, other), most=max(one, other))
    assert Bounds.read(str(bounds)) == bounds
    assert bounds.fixed is (one == other)


@settings(deadline=None)
@given(numbers, numbers, numbers)
def test_a_clamped_number_is_the_nearest_within(one: int, other: int, number: int) -> None:
    bounds = Bounds(least=min(one, other), most=max(one, other))
    clamped = bounds.clamp(number)
    assert bounds.least <= clamped <= bounds.most
    assert clamped == number or clamped in (bounds.least, bounds.most)
