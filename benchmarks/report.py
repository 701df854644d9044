"""Owns what a race comes to: medians, ratios, bars met or missed, as a table and as JSON."""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

_WIDTH = 120
"""Columns that a table needs, whatever a pipe or a log pretends to have."""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """What is measured."""

    name: str
    unit: str
    lower_is_better: bool = False


@dataclass(frozen=True, kw_only=True)
class Score:
    """What one contender reached, round by round, or why there is nothing to tell."""

    name: str
    rounds: Sequence[float] = ()
    missing: str = ""
    note: str = ""

    @property
    def median(self) -> float | None:
        """The middle of the rounds."""
        return statistics.median(self.rounds) if self.rounds else None


@dataclass(frozen=True, kw_only=True)
class Rival:
    """Whom ours is held against, and how many times better it has to be, if at all."""

    score: Score
    bar: float | None = None


@dataclass(frozen=True, kw_only=True)
class Race:
    """One measure of ours, and of all that it is held against."""

    measure: Measure
    ours: Score
    rivals: Sequence[Rival] = ()

    def ratio(self, rival: Rival) -> float | None:
        """How many times better the median of ours is."""
        ours, theirs = self.ours.median, rival.score.median
        if ours is None or theirs is None:
            return None
        return theirs / ours if self.measure.lower_is_better else ours / theirs

    def is_met(self, rival: Rival) -> bool | None:
        """Whether ours is as much better as it has to be; None if there is no telling."""
        ratio = self.ratio(rival)
        return None if rival.bar is None or ratio is None else ratio >= rival.bar

    @property
    def is_lost(self) -> bool:
        """Whether a bar is missed, or ours is missing; who else is missing cannot be lost to."""
        return not self.ours.rounds or any(self.is_met(each) is False for each in self.rivals)


def against_best(measure: Measure, ours: Score, peers: Sequence[Score], bar: float) -> Race:
    """Hold ours against the best of its peers, and show the others beside it."""
    ran = [peer for peer in peers if peer.rounds]
    choose = min if measure.lower_is_better else max
    best = choose(ran, key=lambda peer: peer.median or 0.0) if ran else None
    return Race(
        measure=measure,
        ours=ours,
        rivals=[Rival(score=peer, bar=bar if peer is best else None) for peer in peers],
    )


def percentile(values: Sequence[float], share: float) -> float:
    """Return the least value that this share of all does not exceed."""
    return sorted(values)[math.ceil(len(values) * share) - 1]


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything that one run of a benchmark found out."""

    title: str
    races: Sequence[Race]
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_met(self) -> bool:
        """Whether no bar is missed."""
        return not any(race.is_lost for race in self.races)

    @property
    def place(self) -> dict[str, str]:
        """Where the figures were made; they compare only with others from the same place."""
        return {
            "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
            "python": platform.python_version(),
            **self.environment,
        }

    @property
    def missing(self) -> list[tuple[str, str]]:
        """Who did not run, and why; each reason once."""
        scores = [
            score for race in self.races for score in (race.ours, *(it.score for it in race.rivals))
        ]
        return list(dict.fromkeys((it.name, it.missing) for it in scores if not it.rounds))

    def show(self, console: Console) -> None:
        """Print the table, and below it where it was made."""
        console.width = max(console.width, _WIDTH)
        table = Table(title=self.title, box=box.SIMPLE_HEAD)
        table.add_column("measure")
        table.add_column("contender", no_wrap=True)
        for heading in ("median (least to greatest)", "ours is", "bar"):
            table.add_column(heading, justify="right")
        table.add_column("met")
        for race in self.races:
            _add(table, race)
        console.print(table)
        for name, why in self.missing:
            console.print(f"  [yellow]{escape(name)} is missing:[/] {escape(why)}", soft_wrap=True)
        for name, value in self.place.items():
            line = f"  [dim]{escape(name)}:[/] {escape(value)}"
            console.print(line, highlight=False, soft_wrap=True)

    def write(self, path: Path) -> None:
        """Write everything, every round's figure too, as JSON."""
        document = {
            "title": self.title,
            "environment": self.place,
            "met": self.is_met,
            "races": [_document(race) for race in self.races],
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _add(table: Table, race: Race) -> None:
    title = f"[bold]{race.measure.name}[/], {race.measure.unit}"
    table.add_row(title, f"[bold]{race.ours.name}[/]", _figure(race.ours))
    for rival in race.rivals:
        ratio = race.ratio(rival)
        table.add_row(
            "",
            rival.score.name,
            _figure(rival.score),
            "" if ratio is None else f"{ratio:.2f}x",
            "" if rival.bar is None else f"≥ {rival.bar:g}x",
            _met(race, rival),
        )
    table.add_section()


def _met(race: Race, rival: Rival) -> str:
    if rival.bar is None:
        return ""
    return {None: "[yellow]?[/]", True: "[green]yes[/]", False: "[red]NO[/]"}[race.is_met(rival)]


def _figure(score: Score) -> str:
    """Write the median, and how far the rounds lay apart; why there is none is said below."""
    if not score.rounds:
        return "[yellow]missing[/]"
    low, middle, high = min(score.rounds), statistics.median(score.rounds), max(score.rounds)
    digits = 0 if middle >= 100 else 2
    apart = f" [dim]({low:,.{digits}f} to {high:,.{digits}f})[/]" if len(score.rounds) > 1 else ""
    note = f"[dim]{escape(score.note)}[/] " if score.note else ""
    return f"{note}{middle:,.{digits}f}{apart}"


def _document(race: Race) -> dict[str, Any]:
    return {
        "measure": race.measure.name,
        "unit": race.measure.unit,
        "ours": _scored(race.ours),
        "rivals": [
            _scored(rival.score)
            | {"ratio": race.ratio(rival), "bar": rival.bar, "met": race.is_met(rival)}
            for rival in race.rivals
        ],
    }


def _scored(score: Score) -> dict[str, Any]:
    return {
        "name": score.name,
        "rounds": list(score.rounds),
        "median": score.median,
        "missing": score.missing or None,
        "note": score.note or None,
    }
