"""Owns a run on Redis: who takes part, and how much they do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.entrants import Entrant
from benchmarks.redis.server import Arena
from benchmarks.turns import Turns


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much of everything a round does."""

    rounds: int = 3
    jobs: int = 50_000
    """To fill and drain by Windlass and BullMQ; twice as many by two processes."""
    python_jobs: int = 10_000
    """The same of the peers in Python, which need longer for a job."""
    singles: int = 5_000
    latencies: int = 1_000
    few: int = 10_000
    """To wait behind those that are claimed."""
    many: int = 1_000_000
    payloads: int = 200_000_000
    """Bytes of payloads to pass, and at most `jobs` jobs, while others look."""
    contentions: int = 500
    """Changes by each of the sixteen that contend."""

    def __str__(self) -> str:
        return (
            f"medians of {self.rounds} rounds in turn: {self.jobs:,} jobs filled and drained "
            f"({self.python_jobs:,} by peers in Python), {self.singles:,} enqueued singly, "
            f"{self.latencies:,} sent one each 20 ms"
        )


QUICK = Sizes(
    rounds=1,
    jobs=10_000,
    python_jobs=1_000,
    singles=1_000,
    latencies=100,
    few=5_000,
    many=100_000,
    payloads=10_000_000,
    contentions=100,
)


@dataclass(frozen=True, kw_only=True)
class Field(Turns[Sizes]):
    """Who takes part in a run, where, and how much of it."""

    arena: Arena
    ours: Entrant
    tuned: Entrant
    peers: Sequence[Entrant]

    def jobs(self, entrant: Entrant) -> int:
        """Return how many jobs a contender fills and drains."""
        fast = {self.ours.name, self.tuned.name, "BullMQ"}
        return self.sizes.jobs if entrant.name in fast else self.sizes.python_jobs
