"""Slots follow a simulated load: they get there, stay there, and come back, without flapping."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.simulated_load import Simulated
from windlass.core.values.ranges import Bounds

BOUNDS = Bounds(least=5, most=100)
few = settings(max_examples=25, deadline=None)


def test_a_step_up_is_followed_within_seconds_and_a_step_down_to_the_least() -> None:
    worker = Simulated(BOUNDS, io=0.05, cpu=0.0)
    worker.run(10, lambda: 400)
    assert worker.slots >= 20, "what 400 jobs a second of 50 ms need"
    assert worker.held < 25, "nothing waits any more"
    worker.run(50, lambda: 400)
    assert 20 <= worker.slots <= 20 / 0.6
    worker.run(60, lambda: 400)
    assert worker.changes(after=60) == 0, "a steady load leads to a steady number"
    worker.run(60, lambda: 0)
    assert worker.slots == BOUNDS.least
    assert worker.turns() == 1


@few
@given(st.integers(0, 2**32), st.sampled_from([0.5, 1.0, 2.0]), st.floats(0, 1))
def test_a_noisy_load_does_not_shake_the_slots(seed: int, burst: float, noise: float) -> None:
    """Each moment, and each burst of a second or so, has another rate, around a steady one."""
    chance = random.Random(seed)
    worker = Simulated(BOUNDS, io=0.05, cpu=0.001)
    rate, until = 400.0, 0.0

    def arrivals() -> float:
        nonlocal rate, until
        if worker.now >= until:
            rate, until = 400 * chance.uniform(1 - noise / 2, 1 + noise / 2), worker.now + burst
        return rate * chance.uniform(0.5, 1.5)

    worker.run(300, arrivals)
    assert worker.slots >= 20
    assert worker.turns(after=30) <= 3
    assert worker.changes(after=60) <= 6


def test_a_handler_that_only_computes_gets_no_more_than_the_least() -> None:
    worker = Simulated(BOUNDS, io=0.0, cpu=0.05)
    worker.run(300, lambda: 100)
    assert worker.slots == BOUNDS.least


def test_slots_that_turn_out_to_compute_are_taken_away_within_seconds() -> None:
    worker = Simulated(BOUNDS, io=0.0, cpu=0.05, slots=100)
    worker.run(12, lambda: 100)
    assert worker.slots == BOUNDS.least
    worker.run(600, lambda: 100)
    assert worker.changes(after=12) == 0


def test_a_handler_that_waits_and_computes_gets_as_many_as_use_the_cpu() -> None:
    """50 a second are all that the CPU can do, and take 11 slots: 8 use most of it."""
    worker = Simulated(BOUNDS, io=0.2, cpu=0.02)
    worker.run(600, lambda: 100)
    assert 8 <= worker.slots <= 11
    assert worker.turns() == 0


def test_a_handler_that_waits_long_gets_all_slots_within_seconds_and_keeps_them() -> None:
    worker = Simulated(BOUNDS, io=30.0, cpu=0.0)
    worker.run(8, lambda: 100)
    assert worker.slots == BOUNDS.most
    worker.run(300, lambda: 100)
    assert worker.turns() == 0
    assert worker.changes(after=8) == 0


def test_a_flood_of_quick_jobs_gets_all_slots_although_it_uses_up_the_cpu() -> None:
    worker = Simulated(BOUNDS, io=0.0, cpu=0.00003)
    worker.run(8, lambda: 100_000)
    assert worker.slots == BOUNDS.most


@few
@given(
    least=st.integers(1, 20),
    more=st.integers(1, 200),
    io=st.floats(0.001, 5),
    cpu=st.floats(0.00001, 0.1),
    demand=st.floats(0.01, 500),
)
def test_slots_settle_under_any_steady_load_and_fall_when_it_ends(
    least: int, more: int, io: float, cpu: float, demand: float
) -> None:
    """`demand` is how many slots the load would keep busy if there were CPU for all."""
    bounds = Bounds(least=least, most=least + more)
    worker = Simulated(bounds, io=io, cpu=cpu)
    worker.run(120, lambda: demand / (io + cpu))
    worker.run(180, lambda: demand / (io + cpu))
    assert worker.turns() <= 4
    assert worker.changes(after=120) <= 3
    worker.held = 0.0
    worker.run(120, lambda: 0)
    assert worker.slots == bounds.least
    assert all(bounds.clamp(number) == number for _, number in worker.history)
