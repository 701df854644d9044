"""Owns the terms of the workload that the laws know: its limits, its steps and its names."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

CONCURRENCY = 3
"""How many jobs of `limited` may run at a time."""
RATE = 20
"""How many jobs of `paced` may start in a second."""
PRODUCERS = 2
STEPS = ("draw", "charge", "send")
"""The steps of `staged`, and of `saga`, in their order."""
SCHEDULE = "chaos-tick"
INTERVAL = 1.0
"""Seconds between two ticks of the schedule."""
SCHEMA = "windlass_chaos"
EFFECTS = "chaos_effects"
"""The table that jobs of `transfer` write to, in the schema of the jobs."""
_TRICKLE, _MAX_TRICKLE = 0.5, 15.0
"""The part of the ordered rate at which a producer goes on after its time, and jobs in a second."""


class Receipt(Struct, frozen=True):
    """What a handler returns: which of its runs this was."""

    attempt: int
    mark: str


class Order(Struct, frozen=True, kw_only=True):
    """What a producer is to do: how many jobs of which kinds, in how many seconds."""

    number: int
    seed: int
    jobs: int
    seconds: float
    transfers: bool
    """Whether jobs may join a transaction of their handler."""
    passed: float = 0.0
    """Seconds of the order that had passed when this process began."""
    life: int = 1
    """Which process this is for the order: each takes the place of one that was killed."""

    def rest(self, passed: float) -> Order:
        """Return what is left to do after some seconds have passed."""
        return replace(self, passed=passed)

    def due(self, count: int) -> float:
        """Return after how many seconds the next job is due when `count` have been enqueued."""
        if count < self.jobs:
            return self.seconds * count / self.jobs
        return self.seconds + (count - self.jobs) / self._trickle

    @property
    def enqueued(self) -> int:
        """How many jobs were due before this process began."""
        if self.passed <= self.seconds:
            return int(self.jobs * self.passed / self.seconds)
        return self.jobs + int((self.passed - self.seconds) * self._trickle)

    @property
    def _trickle(self) -> float:
        """Jobs in a second while a storm lasts longer than ordered, so that faults hit some."""
        return min(_TRICKLE * self.jobs / self.seconds, _MAX_TRICKLE)
