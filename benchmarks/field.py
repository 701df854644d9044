"""Owns a run on PostgreSQL: who takes part, and how much they do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.database import Arena
from benchmarks.entrants import Entrant
from benchmarks.turns import Turns


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much of everything a round does."""

    rounds: int = 3
    jobs: int = 50_000
    """To fill and drain."""
    singles: int = 5_000
    latencies: int = 500
    passing: int = 300_000
    """By an old snapshot; the first and the last `edge` of them are compared."""
    edge: int = 20_000
    crowd: int = 16_000
    few: int = 10_000
    """To wait behind those that are claimed."""
    many: int = 1_000_000
    unknown: int = 100_000
    naps: int = 5_000
    """For each process."""
    fan_in: int = 10_000
    """Jobs that one waits for; always as many, since that is what it is about."""

    def __str__(self) -> str:
        return (
            f"medians of {self.rounds} rounds in turn: {self.jobs:,} jobs filled and drained, "
            f"{self.singles:,} enqueued singly, {self.latencies:,} sent one each 20 ms, "
            f"{self.passing:,} past an old snapshot"
        )


QUICK = Sizes(
    rounds=1,
    jobs=10_000,
    singles=1_000,
    latencies=100,
    passing=40_000,
    edge=5_000,
    crowd=3_200,
    few=5_000,
    many=100_000,
    unknown=20_000,
    naps=1_000,
)


@dataclass(frozen=True, kw_only=True)
class Field(Turns[Sizes]):
    """Who takes part in a run, where, and how much of it."""

    arena: Arena
    ours: Entrant
    without_wake_ups: Entrant
    bare: Entrant
    bare_bulks: Sequence[Entrant]
    peers: Sequence[Entrant]
