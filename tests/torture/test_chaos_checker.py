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
from windlass.chaos.plan import NETWORK_FAULTS, PROCESS_FAULTS, FaultKind
from windlass.chaos.report.report import Report
from windlass.chaos.report.text import lines_of
from windlass.chaos.run import Chaos

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

MUTANTS = Path(__file__).with_name("mutants")
STORMS = 3
"""How many there may be: in some storms a fault hits nothing that a mutant would spoil."""
SEED = int(os.environ.get("TORTURE_SEED", "0")) or 11
KILL, STOP = FaultKind.KILL_WORKER, FaultKind.STOP_WORKER
PRODUCER, OVER = FaultKind.KILL_PRODUCER, FaultKind.FAIL_OVER
CLOCK, CUT = FaultKind.STEP_CLOCK, FaultKind.CUT_NETWORK
FAULTS = {"sqlite": 8, "postgres": 15, "redis": 13}
"""How many kinds of faults can be thrown at a store; every kind comes before one comes twice."""
SERVER_FAULTS = {
    "sqlite": set(),
    "postgres": {*NETWORK_FAULTS, CLOCK, FaultKind.TERMINATE_BACKENDS, FaultKind.RESTART_SERVER},
    "redis": {*NETWORK_FAULTS, FaultKind.RESTART_SERVER, OVER},
}


class Mutant(NamedTuple):
    """A mutant, the laws of which at least one must be broken by it, and how it is provoked."""

    name: str
    laws: frozenset[str]
    faults: tuple[FaultKind, ...] = ()
    store: str = "sqlite"
    strikes: int = 3
    patience: float = 15.0
    delay: float = 0.0
    """Seconds by which it is late, in the first storm; three times as many in each further one.

    A law does not count the time in which processes wait for a CPU.
    """


def mutant(name: str, laws: str, *faults: FaultKind, **others: Any) -> Mutant:
    return Mutant(name, frozenset(laws.split()), faults, **others)


ALL = [
    mutant("no_fence", "fence finality leases", STOP, strikes=4),
    mutant("no_fence_on_postgres", "fence finality leases", STOP, strikes=4, store="postgres"),
    mutant("no_fence_on_redis", "fence finality leases", STOP, strikes=4, store="redis"),
    mutant("acknowledge_before_run", "fence"),
    mutant("hasty_rescue", "leases"),
    mutant("no_rescue", "outcomes orphans", KILL),
    mutant("slow_rescue", "recovery", KILL, delay=20.0, patience=300.0),
    mutant("slow_return", "recovery", CUT, strikes=1, delay=20.0, patience=300.0, store="redis"),
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
    mutant("floors_without_sweeps", "outcomes orphans", KILL, store="postgres", patience=8.0),
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
        monkeypatch.setenv("CHAOS_DELAY", str(given.delay * 3**number))
        report = storm(tmp_path / str(number), SEED + number, given)
        if broken(report) & given.laws:
            assert not report.ok
            return
    pytest.fail("\n".join(lines_of(report)))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("store", FAULTS)
def test_a_run_without_a_mutant_keeps_every_law_under_every_fault(
    store: str, tmp_path: Path
) -> None:
    """Prevents a checker that accuses what is right."""
    faults = FAULTS[store]
    report = storm(
        tmp_path / "run", SEED, store=store, faults=faults, seconds=15.0, lease=3.0, patience=60.0
    )

    assert report.ok, "\n".join(lines_of(report))
    thrown = {each.fault for each in report.strikes if each.number}
    assert thrown >= {*PROCESS_FAULTS, *SERVER_FAULTS[store]}
    tried = {each.law for each in report.verdicts if each.standing is Standing.KEPT}
    assert tried >= {"outcomes", "fence", "finality", "leases", "unique", "concurrency", "rate"}
    assert tried >= {"order", "steps", "sagas", "flows", "ticks", "orphans"}
    assert tried >= {"producers", "recovery"}
    assert ("effects" in tried) == (store == "postgres")
