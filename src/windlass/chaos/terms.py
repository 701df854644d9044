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
    life: int = 1
    """Which process this is for the order: each takes the place of one that was killed."""

    def rest(self, done: float) -> Order:
        """Return what is left to do when a part of the time, from 0 to 1, has passed."""
        left = max(1 - done, 0.0)
        jobs, seconds = max(round(self.jobs * left), 1), max(self.seconds * left, 1.0)
        return replace(self, jobs=jobs, seconds=seconds)
