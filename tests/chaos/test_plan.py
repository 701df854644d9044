"""The plan of a storm: the seed decides all of it."""

from __future__ import annotations

from windlass.chaos.plan import DESCRIPTIONS, PROCESS_FAULTS, Fault, FaultKind, plan_faults

LEASE = 3.0


def plan(
    seed: int = 1, count: int = 20, kinds: tuple[FaultKind, ...] = PROCESS_FAULTS
) -> list[Fault]:
    return list(plan_faults(seed, count=count, seconds=60.0, kinds=kinds, lease=LEASE))


def test_the_same_seed_makes_the_same_faults() -> None:
    assert plan(7) == plan(7)
    assert plan(7) != plan(8)


def test_faults_come_in_order_within_the_storm() -> None:
    faults = plan(count=50)

    assert [fault.number for fault in faults] == list(range(1, 51))
    assert [fault.at for fault in faults] == sorted(fault.at for fault in faults)
    assert all(0 < fault.at < 60 for fault in faults)


def test_every_kind_comes_before_one_comes_twice() -> None:
    faults = plan(count=len(PROCESS_FAULTS))

    assert {fault.kind for fault in faults} == set(PROCESS_FAULTS)


def test_some_stops_are_longer_than_the_lease_and_none_as_long_as_twice_the_write_lock() -> None:
    stops = [fault.lasting for fault in plan(count=60, kinds=(FaultKind.STOP_WORKER,))]

    assert max(stops) > LEASE > min(stops)
    assert max(stops) <= 2 * LEASE


def test_a_storm_without_faults_is_quiet() -> None:
    assert plan(count=0) == plan(kinds=()) == []


def test_every_fault_is_described() -> None:
    assert set(DESCRIPTIONS) == set(FaultKind)
