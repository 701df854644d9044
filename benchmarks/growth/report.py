"""Owns what a run of growth comes to: ratios, stalls and figures, with bars met or missed."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.growth.crowds import Figure
from benchmarks.growth.retention import Window
from benchmarks.growth.stage import Sample

RATIO_BAR = 0.8
LOOK_BAR_SECONDS = 1.0
STALL_BAR_SECONDS = 0.1
_BUSY = 0.5
"""CPUs that other programs may use before the wall says how busy they are, and CPU time decides."""
_WIDTH = 130


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The samples of one measure, in the small store and in the grown one."""

    name: str
    small: Sequence[Sample]
    grown: Sequence[Sample]
    is_look: bool = False
    """Whether a person waits for it, so that it has to be quick by itself, too."""

    def ratio(self, field: str) -> float:
        """Return the cost in the small store, divided by the cost in the grown one."""
        return median(self.small, field) / max(median(self.grown, field), 1e-9)

    def is_met(self, *, busy: bool) -> bool:
        """Return whether growth costs little; on a busy machine, CPU time decides."""
        field = "cpu" if busy else "seconds"
        is_quick = not self.is_look or median(self.grown, field) < LOOK_BAR_SECONDS
        return is_quick and self.ratio(field) >= RATIO_BAR

    def __str__(self) -> str:
        ratios = (self.ratio(field) for field in ("seconds", "cpu", "server"))
        return f"{self.name}: " + "wall {:.2f}, CPU {:.2f}, server {:.2f}".format(*ratios)


def median(samples: Sequence[Sample], field: str) -> float:
    """Return the middle of one field of samples."""
    return float(statistics.median(getattr(each, field) for each in samples))


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything that one run found out."""

    place: str
    sizes: Mapping[str, str]
    others: float
    """CPUs that other programs used meanwhile."""
    pairs: Sequence[Pair]
    windows: Sequence[tuple[Window, Window]]
    figures: Sequence[Figure]

    @property
    def is_busy(self) -> bool:
        """Whether others used so much of the machine that the wall says little."""
        return self.others > _BUSY

    @property
    def stall(self) -> float:
        """The greatest wait while a day was emptied; on a busy machine, beyond that without."""
        longest = max((max(each.enqueue, each.start) for _, each in self.windows), default=0.0)
        quiet = max((max(each.enqueue, each.start) for each, _ in self.windows), default=0.0)
        return max(longest - quiet, 0.0) if self.is_busy else longest

    @property
    def is_met(self) -> bool:
        """Whether every bar is met."""
        met = all(each.is_met(busy=self.is_busy) for each in self.pairs)
        return met and self.stall <= STALL_BAR_SECONDS

    def show(self, console: Console) -> None:
        """Print the tables."""
        console.width = max(console.width, _WIDTH)
        sizes = "\n".join(f"{name}: {size}" for name, size in self.sizes.items())
        judged = "CPU time" if self.is_busy else "the wall"
        used = f"others used {self.others:.1f} CPUs: {judged} decides"
        console.print(f"{sizes}\n{self.place}; {used}", highlight=False)
        for table in (self._pairs(), self._stalls(), self._figures()):
            if table.row_count:
                console.print(table)
        if self.windows:
            met = _met(self.stall <= STALL_BAR_SECONDS)
            console.print(f"greatest stall {1000 * self.stall:.0f} ms, bar 100 ms: {met}")

    def write(self, path: Path) -> None:
        """Write every figure as JSON."""
        document = {"met": self.is_met, "stall": self.stall, **asdict(self)}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")

    def _pairs(self) -> Table:
        table = _table(
            "small against grown, ms",
            "measure",
            "wall",
            "ratio",
            "CPU",
            "ratio",
            "server CPU",
            "ratio",
            "met",
        )
        for each in self.pairs:
            cells = []
            for field in ("seconds", "cpu", "server"):
                small, grown = (1000 * median(it, field) for it in (each.small, each.grown))
                cells += [f"{small:,.1f} / {grown:,.1f}", f"{each.ratio(field):.2f}"]
            table.add_row(each.name, *cells, _met(each.is_met(busy=self.is_busy)))
        return table

    def _stalls(self) -> Table:
        table = _table(
            "a day of retention is emptied: longest waits, ms",
            "jobs deleted",
            "prune",
            "enqueue before",
            "enqueue meanwhile",
            "start before",
            "start meanwhile",
        )
        for quiet, busy in self.windows:
            waits = (busy.prune, quiet.enqueue, busy.enqueue, quiet.start, busy.start)
            table.add_row(f"{busy.emptied:,}", *(f"{1000 * each:,.1f}" for each in waits))
        return table

    def _figures(self) -> Table:
        table = _table("many of a thing", "what", "few", "", "many", "", "ratio")
        for each in self.figures:
            small, large = (f"{it:,.3g} {each.unit}" for it in (each.of_few, each.of_many))
            table.add_row(each.name, each.few, small, each.many, large, f"{each.ratio:.2f}")
        return table


def _table(title: str, first: str, *columns: str) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD)
    table.add_column(first)
    for each in columns:
        table.add_column(each, justify="right")
    return table


def _met(is_met: bool) -> str:
    return "[green]yes[/]" if is_met else "[red]NO[/]"
