"""The laws of scaling: when slots and processes become more, and when fewer."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.autoscale import (
    PROCESSES_PAUSES,
    SLOTS_PAUSES,
    Decision,
    ProcessesLoad,
    SlotsLoad,
    scale_processes,
    scale_slots,
)
from windlass.core.values.ranges import Bounds
from windlass.core.workers import WorkerPulse

BOUNDS = Bounds(least=5, most=100)
EIGHT = Bounds(least=1, most=8)
FULL: dict[str, Any] = {"waiting": True, "peak": 1000, "lag": 0.0}


def slots(present: int, **load: Any) -> Decision | None:
    return scale_slots(BOUNDS, present, SlotsLoad(**{"waiting": False, "peak": 0} | load))


def target(present: int, **load: Any) -> int:
    decision = slots(present, **load)
    return present if decision is None else decision.target


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        ({}, 40),
        ({"cpu": 0.5}, 32),
        ({"cpu": 0.69}, 23),
        ({"cpu": 0.7}, 20),
        ({"cpu": 0.95, "service_time": 0.01}, 40),
        ({"cpu": 0.95, "service_time": 0.04}, 20),
        ({"lag": 0.05}, 20),
        ({"lag": None}, 20),
        ({"since_change": 0.9}, 20),
        ({"since_change": 1.1}, 40),
        ({"peak": 19}, 20),
        ({"waiting": False}, 20),
    ],
    ids=str,
)
def test_slots_double_while_work_waits_and_there_is_cpu_left(
    load: dict[str, Any], expected: int
) -> None:
    assert target(20, **FULL | load) == expected


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        ({"lag": 0.2}, 20),
        ({"lag": 0.09}, 40),
        ({"cpu": 0.95, "service_time": 0.4}, 20),
        ({"cpu": 0.95}, 20),
        ({"cpu": 0.95, "peak": 3}, 5),
        ({"cpu": 0.95, "peak": 2}, 40),
        ({"cpu": 0.95, "service_time": 0.04}, 40),
        ({"cpu": 0.85, "service_time": 0.4}, 40),
        ({"lag": 0.2, "since_change": 1.9}, 40),
        ({"lag": 0.2, "since_change": 2.1}, 20),
        ({"lag": 0.2, "peak": 14}, 7),
        ({"lag": 0.2, "peak": 1}, 5),
    ],
    ids=str,
)
def test_slots_halve_at_once_when_the_loop_or_the_cpu_can_take_no_more(
    load: dict[str, Any], expected: int
) -> None:
    assert target(40, **FULL | {"peak": 40} | load) == expected


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        ({"peak": 0}, 20),
        ({"peak": 1}, 30),
        ({"peak": 23}, 31),
        ({"peak": 24}, 32),
        ({"peak": 25}, 40),
        ({"peak": 0, "since_change": 9.9}, 40),
        ({"peak": 0, "waiting": True}, 40),
    ],
    ids=str,
)
def test_slots_that_idle_for_a_while_go_gently(load: dict[str, Any], expected: int) -> None:
    assert target(40, **load) == expected


@pytest.mark.parametrize(
    ("present", "cpu", "expected"),
    [(1, 0.1, 2), (1, 0.6, 2), (2, 0.5, 3), (2, 0.65, 2), (3, 0.65, 4), (3, 0.69, 3)],
)
def test_a_few_slots_become_one_more_if_there_is_cpu_for_it(
    present: int, cpu: float, expected: int
) -> None:
    load = SlotsLoad(**FULL | {"cpu": cpu})
    decision = scale_slots(Bounds(least=1, most=9), present, load)
    assert (present if decision is None else decision.target) == expected


def test_a_number_of_slots_that_was_too_high_is_avoided_for_a_while() -> None:
    strained = {**FULL, "strained_at": 40}
    assert target(20, **strained, since_strain=60) == 30
    assert target(30, **strained, since_strain=60) == 30
    assert target(30, **strained, since_strain=121) == 60


@pytest.mark.parametrize(
    ("present", "load", "reason"),
    [
        (20, FULL, "jobs are waiting and all 20 slots are in use"),
        (20, {"peak": 3}, "no more than 3 of 20 slots were in use for 10s"),
        (20, {}, "no job ran for 10s"),
        (20, {"peak": 9, "lag": 0.25}, "the event loop is late by 0.25s"),
        (
            20,
            {"peak": 20, "cpu": 0.97, "service_time": 0.4},
            "97% of the CPU is used and jobs take 0.4s; fewer at a time finish sooner",
        ),
        (200, {}, "200 is not within 5..100"),
        (1, {}, "1 is not within 5..100"),
    ],
)
def test_a_decision_says_why(present: int, load: dict[str, Any], reason: str) -> None:
    decision = slots(present, **load)
    assert decision is not None
    assert decision.reason == reason


shares = st.floats(0, 2)
loads = st.builds(
    SlotsLoad,
    waiting=st.booleans(),
    peak=st.integers(0, 300),
    service_time=st.none() | shares,
    lag=st.none() | shares,
    cpu=shares,
    since_change=st.floats(0, 1000),
    strained_at=st.none() | st.integers(0, 300),
    since_strain=st.floats(0, 1000),
)


@given(st.integers(1, 200), st.integers(0, 200), st.integers(0, 500), loads)
def test_a_decision_is_a_change_and_within_the_bounds(
    least: int, more: int, present: int, load: SlotsLoad
) -> None:
    bounds = Bounds(least=least, most=least + more)
    decision = scale_slots(bounds, present, load)
    if decision is not None:
        assert decision.target != present
        assert bounds.clamp(decision.target) == decision.target
    else:
        assert bounds.clamp(present) == present


@given(st.integers(5, 100), loads)
def test_no_step_up_leads_to_where_the_same_load_would_lead_down(
    present: int, load: SlotsLoad
) -> None:
    """A rise takes CPU and lag along with it; not even then is it undone by what it has led to."""
    decision = scale_slots(BOUNDS, present, load)
    if decision is None or decision.target < present:
        return
    grown = decision.target / present
    after = SlotsLoad(
        waiting=load.waiting,
        peak=decision.target,
        service_time=None if load.service_time is None else load.service_time * grown,
        lag=None if load.lag is None else load.lag * grown,
        cpu=min(load.cpu * grown, 1.0),
    )
    again = scale_slots(BOUNDS, decision.target, after)
    assert again is None or again.target > decision.target


@given(st.integers(5, 100), st.integers(0, 100), st.booleans())
def test_no_fall_leads_to_where_the_same_load_would_lead_up(
    present: int, peak: int, waiting: bool
) -> None:
    decision = slots(present, peak=peak, waiting=False)
    if decision is not None and decision.target < present:
        again = slots(decision.target, peak=min(peak, decision.target), waiting=waiting)
        assert again is None or again.target < decision.target


@given(st.integers(5, 100))
def test_an_idle_worker_comes_back_to_its_least(present: int) -> None:
    for _ in range(6):
        present = target(present)
    assert present == BOUNDS.least


# -- processes -------------------------------------------------------------------------------------


def pulse(**told: Any) -> WorkerPulse:
    return WorkerPulse(
        **{"slots": 10, "running": 10, "busy": 1.0, "waiting": True, "cpu": 0.2} | told
    )


IDLE = pulse(running=0, busy=0.0, waiting=False, cpu=0.01)


def processes(present: int, *pulses: WorkerPulse, bounds: Bounds = EIGHT, **load: Any) -> int:
    given: dict[str, Any] = {"slots": Bounds.of(10), "cpus": 4, "peak": 100.0} | load
    decision = scale_processes(bounds, present, ProcessesLoad(pulses=pulses, **given))
    return present if decision is None else decision.target


@pytest.mark.parametrize(
    ("pulses", "expected"),
    [
        ([pulse()], 2),
        ([pulse(cpu=1.0)], 2),
        ([pulse(waiting=False)], 1),
        ([pulse()] * 2, 3),
        ([pulse()] * 4, 6),
        ([pulse(), pulse(waiting=False)], 2),
        ([pulse(cpu=1.0)] * 3, 4),
        ([pulse(cpu=1.0)] * 4, 4),
        ([pulse(cpu=0.6)] * 4, 6),
        ([pulse()] * 7, 8),
        ([pulse()] * 8, 8),
    ],
)
def test_processes_are_added_while_work_waits_and_each_has_all_it_takes(
    pulses: list[WorkerPulse], expected: int
) -> None:
    assert processes(len(pulses), *pulses) == expected


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"slots": 40, "busy": 0.4}, 1),
        ({"slots": 100}, 2),
        ({"slots": 40, "busy": 1.0}, 2),
        ({"slots": 40, "busy": 0.4, "cpu": 0.9}, 2),
        ({"slots": 40, "busy": 0.4, "loop_lag": timedelta(seconds=0.2)}, 2),
        ({"slots": None, "busy": 0.4}, 1),
    ],
    ids=str,
)
def test_a_process_that_can_have_more_slots_gets_those_first(
    told: dict[str, Any], expected: int
) -> None:
    assert processes(1, pulse(**told), slots=Bounds(least=5, most=100)) == expected


def test_the_scaler_waits_for_a_process_that_has_not_reported_yet() -> None:
    assert processes(2, pulse()) == 2
    assert processes(2, IDLE, peak=0.0) == 2
    assert processes(2) == 2


@pytest.mark.parametrize(
    ("present", "peak", "expected"),
    [(8, 0.08, 4), (8, 4.2, 7), (8, 4.3, 8), (2, 0.6, 1), (2, 0.7, 2), (1, 0.0, 1), (3, 0.03, 1)],
)
def test_processes_with_little_to_do_are_ended_one_by_one(
    present: int, peak: float, expected: int
) -> None:
    assert processes(present, *[IDLE] * present, peak=peak) == expected
    assert processes(present, *[IDLE] * present, peak=peak, since_change=59) == present


def test_no_process_is_ended_while_work_waits() -> None:
    assert processes(2, IDLE, pulse(), peak=0.1) == 2


def test_more_processes_than_cpus_are_ended_when_they_only_take_turns() -> None:
    assert processes(8, *[pulse(cpu=0.5)] * 8) == 4
    assert processes(8, *[pulse(cpu=0.4)] * 8) == 8
    assert processes(8, *[pulse(cpu=0.5)] * 8, bounds=Bounds(least=6, most=8)) == 6


def test_a_rise_of_processes_takes_its_time() -> None:
    assert processes(1, pulse(), since_change=PROCESSES_PAUSES.rise - 1) == 1
    assert processes(1, pulse(), since_change=PROCESSES_PAUSES.rise) == 2
    assert PROCESSES_PAUSES.rise > SLOTS_PAUSES.rise


@given(
    st.integers(1, 8),
    st.integers(0, 7),
    st.integers(0, 20),
    st.lists(
        st.builds(
            WorkerPulse,
            slots=st.none() | st.integers(1, 20),
            busy=st.floats(0, 1),
            waiting=st.booleans(),
            cpu=st.floats(0, 4),
        ),
        max_size=20,
    ),
    st.floats(0, 20),
    st.integers(1, 16),
)
def test_processes_stay_within_their_bounds(
    least: int, more: int, present: int, pulses: list[WorkerPulse], peak: float, cpus: int
) -> None:
    bounds = Bounds(least=least, most=least + more)
    load = ProcessesLoad(
        pulses=tuple(pulses), slots=Bounds.of(10), cpus=cpus, peak=peak, since_change=math.inf
    )
    decision = scale_processes(bounds, present, load)
    if decision is not None:
        assert decision.target != present
        assert bounds.clamp(decision.target) == decision.target
        assert decision.reason
