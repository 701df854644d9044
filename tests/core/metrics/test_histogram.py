"""Times are counted in buckets that are small enough for percentiles, and add up."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.metrics.histogram import (
    BOUNDS,
    SHOWN,
    add_sparse,
    bucket_of,
    empty,
    mean,
    quantile,
    shown,
    sparse,
    total,
)

seconds = st.floats(min_value=0.0001, max_value=80_000, allow_nan=False)


def counted(times: list[float]) -> list[int]:
    counts = empty()
    for time in times:
        counts[bucket_of(time)] += 1
    return counts


def test_bounds_grow_by_an_eighth_at_most() -> None:
    steps = [high / low for low, high in pairwise(BOUNDS)]
    assert all(1.09 < step < 1.15 for step in steps)


def test_the_bounds_for_prometheus_are_among_the_counted_ones() -> None:
    assert set(SHOWN) <= set(BOUNDS)


@given(st.lists(seconds, min_size=1, max_size=200), st.sampled_from([0.5, 0.95, 0.99]))
def test_a_percentile_is_right_to_an_eighth(times: list[float], share: float) -> None:
    exact = sorted(times)[math.ceil(share * len(times)) - 1]
    found = quantile(sparse(counted(times)), share)
    assert found is not None
    assert exact <= found * (1 + 1e-9)
    assert found <= max(exact * 1.15, BOUNDS[0])


@given(st.lists(seconds, max_size=100))
def test_figures_for_prometheus_are_exact(times: list[float]) -> None:
    assert shown(counted(times)) == [sum(t <= b for t in times) for b in SHOWN] + [len(times)]


@given(st.lists(seconds, max_size=50), st.lists(seconds, max_size=50))
def test_buckets_of_two_workers_add_up(one: list[float], other: list[float]) -> None:
    both = add_sparse(sparse(counted(one)), sparse(counted(other)))
    assert both == sparse(counted(one + other))
    assert total(both) == len(one) + len(other)


def test_nothing_has_no_percentile() -> None:
    assert quantile([], 0.5) is None


@pytest.mark.parametrize("bad", [[-1, 5], [3], [2, -7], [10_000, 1]])
def test_buckets_that_are_none_break_nothing(bad: list[int]) -> None:
    """A record can be changed by hand, or by another release."""
    assert quantile(bad, 0.5) in (None, BOUNDS[-1])


def test_the_mean_is_right_to_half_a_bucket() -> None:
    times = [0.013, 0.2, 0.2, 1.7, 40.0]
    buckets = empty()
    for seconds in times:
        buckets[bucket_of(seconds)] += 1
    assert mean(sparse(buckets)) == pytest.approx(sum(times) / 5, rel=0.07)


def test_no_time_has_no_mean_and_what_takes_none_has_next_to_none() -> None:
    assert mean([]) is None
    assert mean([0, 7]) == pytest.approx(0.00005)
    assert mean([len(BOUNDS), 1]) == BOUNDS[-1]
