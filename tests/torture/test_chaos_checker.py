"""The checker of `windlass chaos` bites: each mutant of Windlass turns a short run red.

A run without a mutant is green. Both are real runs, with real processes.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from windlass.chaos.laws.verdict import Standing
from windlass.chaos.options import Options
from windlass.chaos.plan import FaultKind
from windlass.chaos.report.report import Report
from windlass.chaos.report.text import lines_of
from windlass.chaos.run import Chaos

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

MUTANTS = Path(__file__).with_name("mutants")
STORMS = 3
"""How many there may be: in some storms a fault hits nothing that a mutant would spoil."""
SEED = int(os.environ.get("TORTURE_SEED", "0")) or 11
KILL, STOP = FaultKind.KILL_WORKER, FaultKind.STOP_WORKER
PRODUCER, OVER = FaultKind.KILL_PRODUCER, FaultKind.FAIL_OVER
CLOCK = FaultKind.STEP_CLOCK


class Mutant(NamedTuple):
    """A mutant, the laws of which at least one must be broken by it, and how it is provoked."""

    name: str
    laws: frozenset[str]
    faults: tuple[FaultKind, ...] = ()
    store: str = "sqlite"
    strikes: int = 3
    patience: float = 15.0


def mutant(name: str, laws: str, *faults: FaultKind, **others: Any) -> Mutant:
    return Mutant(name, frozenset(laws.split()), faults, **others)


ALL = [
    mutant("no_fence", "fence finality leases", STOP, strikes=4),
    mutant("acknowledge_before_run", "fence"),
    mutant("hasty_rescue", "leases"),
    mutant("no_rescue", "outcomes orphans", KILL),
    mutant("no_checkpoint", "steps sagas outcomes", KILL),
    mutant("undo_in_the_order_of_the_steps", "sagas"),
    mutant("unique_key_freed_early", "unique"),
    mutant("children_do_not_wait", "flows"),
    mutant("acknowledge_before_write", "outcomes"),
    mutant("limits_counted_locally", "concurrency rate"),
    mutant("retries_lose_their_place", "order"),
    mutant("ticks_come_twice", "ticks"),
    mutant("ticker_dies", "ticks", patience=5.0),
    mutant("transactions_do_not_settle", "effects", store="postgres"),
    mutant("floors_without_sweeps", "outcomes orphans", store="postgres", patience=8.0),
    mutant("calls_are_written_job_by_job", "producers", PRODUCER),
    mutant("replicas_are_not_waited_for", "outcomes", OVER, store="redis", strikes=1),
]


def storm(directory: Path, seed: int, given: Mutant | None = None, **others: Any) -> Report:
    """Run chaos for a short time."""
    options = {"jobs": 250, "faults": 0, "seconds": 6.0, "patience": 15.0, **others}
    if given is not None:
        options |= {"store": given.store, "fleets": 1, "patience": given.patience}
        if given.faults:
            options |= {"faults": given.strikes, "only": given.faults}
    directory.mkdir()
    chaos = Chaos(Options(seed=seed, **{"lease": 2.0, **options}), directory, lambda _: None)
    return asyncio.run(chaos.run())


def broken(report: Report) -> set[str]:
    return {each.law for each in report.verdicts if each.standing is Standing.BROKEN}


@pytest.mark.parametrize("given", ALL, ids=lambda given: given.name)
def test_a_mutant_of_windlass_turns_a_run_red(
    given: Mutant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents a checker that is green whatever happens."""
    monkeypatch.setenv("PYTHONPATH", str(MUTANTS))
    monkeypatch.setenv("CHAOS_MUTANT", given.name)
    for number in range(STORMS):
        report = storm(tmp_path / str(number), SEED + number, given)
        if broken(report) & given.laws:
            assert not report.ok
            return
    pytest.fail("\n".join(lines_of(report)))


@pytest.mark.parametrize("store", ["sqlite", "postgres", "redis"])
def test_a_run_without_a_mutant_keeps_every_law(store: str, tmp_path: Path) -> None:
    """Prevents a checker that accuses what is right."""
    report = storm(
        tmp_path / "run", SEED, store=store, faults=6, seconds=12.0, lease=3.0, patience=60.0
    )

    # A machine that is busy with other tests may recover late.
    assert not broken(report) - {"recovery"}, "\n".join(lines_of(report))
    tried = {each.law for each in report.verdicts if each.standing is Standing.KEPT}
    assert tried >= {"outcomes", "fence", "finality", "leases", "unique", "concurrency", "rate"}
    assert tried >= {"order", "steps", "sagas", "flows", "ticks", "orphans"}
    assert ("effects" in tried) == (store == "postgres")


@pytest.mark.parametrize(("store", "fault"), [("redis", OVER), ("postgres", CLOCK)])
def test_failovers_clock_steps_and_killed_producers_break_no_law(
    store: str, fault: FaultKind, tmp_path: Path
) -> None:
    """Prevents a checker that accuses a failover of more than it may take back."""
    only = (fault, PRODUCER)
    options: dict[str, Any] = {"store": store, "only": only, "faults": 4, "patience": 60.0}
    report = storm(tmp_path / "run", SEED, seconds=12.0, lease=3.0, **options)

    assert not broken(report) - {"recovery"}, "\n".join(lines_of(report))
    assert {each.fault for each in report.strikes if each.number} == set(only)
    tried = {each.law for each in report.verdicts if each.standing is Standing.KEPT}
    assert tried >= {"outcomes", "fence", "producers", "unique", "ticks", "orphans"}
