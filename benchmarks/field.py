"""Owns a run on PostgreSQL: who takes part, how much they do, and that they take turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import psycopg
from rich.console import Console
from rich.markup import escape

from benchmarks.database import Arena
from benchmarks.entrants import Entrant
from benchmarks.program import ProgramFailed
from benchmarks.report import Score

T = TypeVar("T")
R = TypeVar("R")
_SHOWN = 4


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


class Series(Generic[T]):
    """What one contender reached, round by round, until it failed."""

    def __init__(self, entrant: Entrant, progress: Console) -> None:
        self.entrant = entrant
        self.missing = entrant.missing
        self.rounds: list[T] = []
        self._progress = progress

    def add(self, measure: Callable[[Entrant], T]) -> None:
        """Measure once more, unless it has failed before."""
        found = self.attempt(lambda: measure(self.entrant))
        if found is not None:
            self.rounds.append(found)

    def attempt(self, action: Callable[[], R]) -> R | None:
        """Do something with it. If that fails it is out, and the others go on without it."""
        if self.missing:
            return None
        try:
            return action()
        except (ProgramFailed, psycopg.Error) as error:
            lines = str(error).strip().splitlines()
            self._progress.print(f"[red]{self.entrant.name}[/]", *map(escape, lines[-_SHOWN:]))
            self.missing = f"failed: {lines[-1]}"
            self.rounds.clear()
            return None

    def score(self, figure: Callable[[T], float], *, name: str = "", note: str = "") -> Score:
        """Return one figure of every round."""
        return Score(
            name=name or self.entrant.name,
            rounds=[figure(each) for each in self.rounds],
            missing=self.missing,
            note=note,
        )


@dataclass(frozen=True, kw_only=True)
class Field:
    """Who takes part in a run, where, and how much of it."""

    arena: Arena
    sizes: Sizes
    progress: Console
    ours: Entrant
    without_wake_ups: Entrant
    bare: Entrant
    bare_bulks: Sequence[Entrant]
    peers: Sequence[Entrant]

    def series(self, entrant: Entrant) -> Series[T]:
        """Begin to keep what one contender reaches."""
        return Series(entrant, self.progress)

    def take_turns(
        self,
        what: str,
        turns: Sequence[tuple[Entrant, Callable[[Entrant], T]]],
        *,
        rounds: int | None = None,
    ) -> list[Series[T]]:
        """Measure all in turn, so that whatever else the machine does falls on all alike."""
        everybody: list[Series[T]] = [self.series(entrant) for entrant, _ in turns]
        total = self.sizes.rounds if rounds is None else rounds
        for number in range(total):
            for series, (entrant, measure) in zip(everybody, turns, strict=True):
                self.tell(f"{what}, round {number + 1} of {total}: {entrant.name}")
                series.add(measure)
        return everybody

    def tell(self, what: str) -> None:
        """Say what is done now, so that nobody thinks that nothing is."""
        self.progress.print(f"[dim]{escape(what)}[/]", highlight=False)
