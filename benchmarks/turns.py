"""Owns that contenders take turns, and what each of them reached, round by round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import psycopg
from rich.console import Console
from rich.markup import escape

from benchmarks.entrants import Entrant
from benchmarks.program import ProgramFailed
from benchmarks.report import Score

T = TypeVar("T")
R = TypeVar("R")
_SHOWN = 4


class HasRounds(Protocol):
    """The sizes of a run, of which only the number of rounds matters here."""

    @property
    def rounds(self) -> int:
        """How often everything is measured."""
        ...


S = TypeVar("S", bound=HasRounds)


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
class Turns(Generic[S]):
    """Lets contenders take turns, and says on the way who is at it."""

    sizes: S
    progress: Console

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
