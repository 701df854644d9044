"""Owns what a race comes to: medians, ratios, bars met or missed, as a table and as JSON."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.contender import Contender


@dataclass(frozen=True, kw_only=True)
class Measure:
    """What is measured, and by how much ours has to be better: `bar` times, or not at all."""

    name: str
    unit: str
    bar: float | None
    lower_is_better: bool = False


@dataclass(frozen=True, kw_only=True)
class Race:
    """One measure of both, round by round."""

    measure: Measure
    ours: Sequence[float]
    theirs: Sequence[float]

    @property
    def ratio(self) -> float:
        """How many times better the median of ours is."""
        ours, theirs = statistics.median(self.ours), statistics.median(self.theirs)
        return theirs / ours if self.measure.lower_is_better else ours / theirs

    @property
    def is_met(self) -> bool:
        """Whether ours is as much better as it has to be."""
        bar = self.measure.bar
        if bar is None:
            return True
        return self.ratio > bar if self.measure.lower_is_better else self.ratio >= bar


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything that one run of a benchmark found out."""

    title: str
    ours: type[Contender]
    theirs: type[Contender]
    races: Sequence[Race]
    sizes: str
    directory: Path

    @property
    def is_met(self) -> bool:
        """Whether every bar is met."""
        return all(race.is_met for race in self.races)

    @property
    def environment(self) -> dict[str, str]:
        """Where the figures were made; they compare only with others from the same place."""
        return {
            "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
            "directory": str(self.directory),
            "sizes": self.sizes,
            self.ours.name: self.ours.settings,
            self.theirs.name: self.theirs.settings,
        }

    def show(self, console: Console) -> None:
        """Print the table, and below it where it was made."""
        table = Table(title=self.title, box=box.SIMPLE_HEAD)
        table.add_column("measure")
        for heading in (self.ours.name, self.theirs.name, "ratio", "bar"):
            table.add_column(heading, justify="right")
        table.add_column("met")
        for race in self.races:
            table.add_row(*_cells(race))
        console.print(table)
        for name, value in self.environment.items():
            console.print(f"  [dim]{name}:[/] {value}", highlight=False, soft_wrap=True)

    def write(self, path: Path) -> None:
        """Write everything, every round's figure too, as JSON."""
        document = {
            "title": self.title,
            "environment": self.environment,
            "met": self.is_met,
            "races": [_document(race) for race in self.races],
        }
        path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _cells(race: Race) -> tuple[str, ...]:
    measure = race.measure
    return (
        f"{measure.name}, {measure.unit}",
        _figure(race.ours),
        _figure(race.theirs),
        f"{race.ratio:.2f}x",
        *_verdict(race),
    )


def _verdict(race: Race) -> tuple[str, str]:
    """Write the bar, and whether it is met; without a bar there is nothing to meet."""
    bar = race.measure.bar
    if bar is None:
        return "-", ""
    sign = ">" if race.measure.lower_is_better else "≥"
    return f"{sign} {bar:g}x", "[green]yes[/]" if race.is_met else "[red]NO[/]"


def _figure(rounds: Sequence[float]) -> str:
    """Write the median, and how far the rounds lay apart."""
    low, middle, high = min(rounds), statistics.median(rounds), max(rounds)
    digits = 0 if middle >= 100 else 2
    return f"{middle:,.{digits}f} [dim]({low:,.{digits}f} to {high:,.{digits}f})[/]"


def _document(race: Race) -> dict[str, Any]:
    return {
        "measure": race.measure.name,
        "unit": race.measure.unit,
        "ours": list(race.ours),
        "theirs": list(race.theirs),
        "ratio": race.ratio,
        "bar": race.measure.bar,
        "met": race.is_met,
    }
