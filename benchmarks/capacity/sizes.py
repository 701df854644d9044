"""Owns how much of everything a run does, and where it does it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.capacity.yards import Site


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much of everything is done."""

    seconds: float = 0.7
    """For how long a crew is watched in a round, while it works."""
    rounds: int = 3
    """How often, wherever a rate is told."""
    idle: float = 8.0
    """For how long a crew is watched while it idles: longer than it waits between two polls."""
    jobs: int = 20_000
    """How many are filled where their number is what counts."""
    many: int = 100_000
    """How many, where a server keeps them in memory."""
    rates: int = 250_000
    """More jobs a second than a crew will do, so that it has work for as long as it is watched."""
    slots: tuple[int, ...] = (1, 10, 100, 500)
    many_slots: int = 100
    """From how many on it is asked what more processes bring: with fewer, more slots do."""
    processes: tuple[int, ...] = tuple(n for n in (1, 2, 4) if n <= max(2, os.cpu_count() or 1))
    naps: tuple[int, ...] = (10, 100)
    napping_slots: tuple[int, ...] = (10, 100, 500)
    payloads: tuple[int, ...] = (100, 10_000, 100_000)
    payload_bytes: int = 40_000_000
    singles: int = 2_000
    of_each_thread: int = 100
    """The fewest enqueues of a thread, since it has to start."""
    sleepers: int = 1_000
    """Jobs that wait at once in one process, for the memory of a slot."""
    polls: tuple[str, ...] = ("100ms", "1s", "5s")
    stamps: int = 40
    """Jobs that are sent to an idle worker, one by one."""
    stamped_every: float = 0.33
    leases: tuple[int, ...] = (5, 10, 30)

    def enough(self, rate: float, seconds: float | None = None) -> int:
        """Return how many jobs last for all rounds, and while a crew runs in."""
        return int(rate * (self.rounds * (seconds or self.seconds) + 1))


QUICK = Sizes(
    seconds=0.3,
    rounds=2,
    idle=1.2,
    jobs=300,
    many=300,
    rates=2_000,
    slots=(100,),
    processes=(1,),
    naps=(10,),
    napping_slots=(10,),
    payloads=(100,),
    payload_bytes=30_000,
    singles=20,
    of_each_thread=1,
    sleepers=50,
    polls=("100ms",),
    stamps=5,
    stamped_every=0.1,
    leases=(1,),
)
"""Enough to find out what is broken; the figures mean nothing."""


@dataclass(frozen=True, kw_only=True)
class Survey:
    """What every part of a run needs: where, how much, and whom to tell what it does."""

    site: Site
    sizes: Sizes
    tell: Callable[[str], None]
