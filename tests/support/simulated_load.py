"""Owns a worker that is only simulated: a queue, jobs that wait and compute, and its scaler.

Time is counted, not waited for, so that ten minutes of load take a moment. What measures and what
decides is the real thing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from windlass.core.autoscale import SLOTS_PAUSES, scale_slots
from windlass.core.values.ranges import Bounds
from windlass.worker.policies.slot_scaler import Look, SlotsGauge

STEP = 0.025
HANDFUL = 50
"""How many handlers run before the event loop turns."""


@dataclass
class Simulated:
    """A worker whose jobs wait for `io` seconds and compute for `cpu` seconds each."""

    bounds: Bounds
    io: float
    cpu: float
    slots: int = 0
    now: float = 0.0
    done: float = 0.0
    held: float = 0.0
    """Jobs that wait or run."""
    computed: float = 0.0
    served: float = 0.0
    history: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.slots = self.slots or self.bounds.least
        self.history.append((0.0, self.slots))
        self._gauge = SlotsGauge(SLOTS_PAUSES, 2, self._look(waiting=False, peak=0, late=0.0))

    def run(self, seconds: float, arrivals: Callable[[], float]) -> None:
        """Let time pass; `arrivals` says how many jobs a second come at the moment."""
        end = self.now + seconds
        while self.now < end:
            self._consider(arrivals)

    def turns(self, *, after: float = 0.0) -> int:
        """Count the changes of direction."""
        numbers = [number for when, number in self.history if when >= after]
        steps = [later > earlier for earlier, later in pairwise(numbers)]
        return sum(later != earlier for earlier, later in pairwise(steps))

    def changes(self, *, after: float) -> int:
        """Count the changes."""
        return sum(when >= after for when, _ in self.history)

    def _consider(self, arrivals: Callable[[], float]) -> None:
        waiting, peak = True, 0
        for _ in range(round(SLOTS_PAUSES.look / STEP)):
            running = self._work(arrivals())
            peak = max(peak, running)
            waiting = waiting and self.held > self.slots
        load = self._gauge.take(self._look(waiting=waiting, peak=peak, late=self._late()))
        decision = scale_slots(self.bounds, self.slots, load)
        if decision is not None:
            self.slots = decision.target
            self._gauge.changed(decision)
            self.history.append((self.now, self.slots))

    def _late(self) -> float:
        """Return by how much a timer is late: as a rule, half of one turn of the loop."""
        running = min(self.slots, self.held)
        rate = running / (self.io + self.cpu)
        in_io = min(rate, self._fastest) * self.io
        return min(running - in_io, HANDFUL) * self.cpu / 2

    @property
    def _fastest(self) -> float:
        return 1 / self.cpu if self.cpu else float("inf")

    def _work(self, rate: float) -> int:
        """Let a moment pass, and return how many jobs ran in it."""
        self.now += STEP
        self.held += rate * STEP
        running = min(self.slots, self.held)
        ended = min(running / (self.io + self.cpu), self._fastest) * STEP
        self.held -= ended
        if self.held < 0.01 and not rate:
            self.held = 0.0
        self.done += ended
        self.computed += ended * self.cpu
        self.served += running * STEP
        return round(running)

    def _look(self, *, waiting: bool, peak: int, late: float) -> Look:
        return Look(
            now=self.now,
            due=self.now - late,
            waiting=waiting,
            peak=peak,
            processed=round(self.done),
            served=self.served,
            loop_cpu=self.computed,
            process_cpu=self.computed,
        )
