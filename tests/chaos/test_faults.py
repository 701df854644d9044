"""The throwing of faults: who is hit, and what the strike says about it."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass.chaos.faults import Thrower
from windlass.chaos.grounds.ground import Ground
from windlass.chaos.ledger import Ledger
from windlass.chaos.plan import Fault, FaultKind
from windlass.chaos.processes import Fleet, ProducerProcess
from windlass.chaos.terms import Order

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
Process = subprocess.Popen[bytes]


class StillFleet(Fleet):
    """A fleet with one worker, which does nothing."""

    def __init__(self, worker: Process, directory: Path, *, is_spared: bool) -> None:
        super().__init__(1, directory, {}, 3.0, is_spared=is_spared)
        self._worker = worker

    @property
    def is_running(self) -> bool:
        return True

    def workers(self) -> list[int]:
        return [self._worker.pid]


class StillProducer(ProducerProcess):
    """A producer that does nothing."""

    def __init__(self, process: Process, directory: Path) -> None:
        order = Order(number=1, seed=1, jobs=1, seconds=1.0, transfers=False)
        super().__init__(order, directory, {})
        self._process = process


class NotedGround(Ground):
    """A store that notes what is done to it."""

    name = "noted"

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[float] = []
        self.failovers = 0

    async def step_clock(self, seconds: float) -> None:
        self.steps.append(seconds)

    async def fail_over(self, pause: float) -> None:
        self.failovers += 1


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    """Give three processes, which end with the test."""
    started = [subprocess.Popen(SLEEP) for _ in range(3)]
    yield started
    for process in started:
        process.kill()
        process.wait()


class Stage:
    """A worker that may be hit, one that is spared, and a producer."""

    def __init__(self, processes: list[Process], directory: Path) -> None:
        self.hit, self.spared, self.producer = processes
        fleets = [
            StillFleet(self.hit, directory, is_spared=False),
            StillFleet(self.spared, directory, is_spared=True),
        ]
        self.ground = NotedGround()
        producers = [StillProducer(self.producer, directory)]
        self.thrower = Thrower(self.ground, fleets, producers, Ledger(directory / "ledger"))

    def throw(self, kind: FaultKind, pick: float = 0.99) -> None:
        fault = Fault(number=1, kind=kind, at=0.0, lasting=0.0, pick=pick)
        asyncio.run(self.thrower.throw(fault))


@pytest.fixture
def stage(processes: list[Process], tmp_path: Path) -> Stage:
    """Give a stage on which faults can be thrown."""
    return Stage(processes, tmp_path)


def test_a_spared_fleet_is_never_hit(stage: Stage) -> None:
    stage.throw(FaultKind.KILL_WORKER)

    assert stage.hit.wait() == -signal.SIGKILL
    assert stage.spared.poll() is None
    assert stage.producer.poll() is None


def test_a_killed_producer_is_named_by_the_strike_and_excuses_no_worker(stage: Stage) -> None:
    stage.throw(FaultKind.KILL_PRODUCER)

    assert stage.producer.wait() == -signal.SIGKILL
    (strike,) = stage.thrower.strikes
    assert strike.pids == (stage.producer.pid,)
    assert not strike.touches_all
    assert not strike.forgets


def test_a_failover_touches_all_and_forgets(stage: Stage) -> None:
    stage.throw(FaultKind.FAIL_OVER)

    (strike,) = stage.thrower.strikes
    assert stage.ground.failovers == 1
    assert strike.touches_all
    assert strike.forgets


def test_the_clock_is_set_both_ways_by_more_than_a_slow_answer(stage: Stage) -> None:
    for number in range(20):
        stage.throw(FaultKind.STEP_CLOCK, pick=number / 20)

    steps = stage.ground.steps
    assert {step > 0 for step in steps} == {True, False}
    assert all(3.0 <= abs(step) <= 12.0 for step in steps)
    assert [strike.clock_step for strike in stage.thrower.strikes] == steps
    assert stage.thrower.strikes[0].note == f"by {steps[0]:+g} s"
    assert all(strike.touches_all for strike in stage.thrower.strikes)
