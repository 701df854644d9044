"""Owns what the measure of the page comes to: times, bytes and loads, with bars met or missed."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.report import percentile
from benchmarks.web.viewers import Load

_WIDTH = 120
SECONDS_BAR = 0.1
PAGE_BAR, SCRIPT_BAR = 60_000, 25_000
LOAD_BAR = 1.2
_BUSY = 0.5
_WITH_BAR = ("/", "/jobs")
"""The pages that people open first; the others are shown without a bar."""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How long the server took for something, each time anew."""

    name: str
    seconds: Sequence[float]
    cpu_seconds: Sequence[float]
    """CPU time of the page's process and of the database for each."""
    transferred: int

    @property
    def median(self) -> float:
        """The middle of the times."""
        return statistics.median(self.seconds)

    @property
    def cpu(self) -> float:
        """The middle of the CPU times."""
        return statistics.median(self.cpu_seconds)

    def is_met(self, *, busy: bool) -> bool | None:
        """Whether the median is below the bar; None: there is none.

        On a machine that others use, the wall says how busy they are, and CPU time decides.
        """
        if self.name not in _WITH_BAR:
            return None
        return (self.cpu if busy else self.median) < SECONDS_BAR

    def __str__(self) -> str:
        p95 = percentile(self.seconds, 0.95)
        figures = (1000 * each for each in (self.median, p95, self.cpu))
        return "{}: {:.1f} ms, p95 {:.1f} ms, CPU {:.1f} ms".format(self.name, *figures)


@dataclass(frozen=True, kw_only=True)
class Weight:
    """The bytes of a page and of what it loads, at the first visit."""

    name: str
    page: int
    scripts: int
    styles: int

    @property
    def is_met(self) -> bool:
        """Whether they are below the bars."""
        return self.page + self.scripts + self.styles < PAGE_BAR and self.scripts < SCRIPT_BAR


@dataclass(frozen=True, kw_only=True)
class Watched:
    """The load of one viewer, and of many."""

    name: str
    pages: int
    one: Load
    many: Load

    @property
    def ratio(self) -> float:
        """How many times the statements of one viewer all of them cost."""
        return self.many.statements / max(self.one.statements, 0.1)

    @property
    def is_met(self) -> bool:
        """Whether that is about the same."""
        return self.ratio <= LOAD_BAR

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.one.statements:.1f} statements/s for {self.pages} open, "
            f"{self.many.statements:.1f} for many"
        )


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything that one run found out."""

    sizes: str
    timings: Sequence[Timing]
    weights: Sequence[Weight]
    watched: Sequence[Watched]
    others: float
    """CPUs that other programs used meanwhile, on the average."""

    @property
    def is_busy(self) -> bool:
        """Whether others used so much of the machine that times are too long."""
        return self.others > _BUSY

    @property
    def is_met(self) -> bool:
        """Whether no bar is missed."""
        times = all(each.is_met(busy=self.is_busy) is not False for each in self.timings)
        weights = all(each.is_met for each in self.weights)
        return times and weights and all(each.is_met for each in self.watched)

    @property
    def place(self) -> str:
        """Where the figures were made."""
        return (
            f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs, Python "
            f"{platform.python_version()}; others used {self.others:.1f} CPUs meanwhile"
            + (": judged by CPU time" if self.is_busy else "")
        )

    def show(self, console: Console) -> None:
        """Print the tables."""
        console.width = max(console.width, _WIDTH)
        console.print(f"{self.sizes}\n{self.place}", highlight=False)
        for table in (self._times(), self._bytes(), self._loads()):
            console.print(table)

    def write(self, path: Path) -> None:
        """Write every figure as JSON."""
        document = {"place": self.place, "met": self.is_met, **asdict(self)}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")

    def _times(self) -> Table:
        table = _table(
            "server time, nothing remembered", "page", "median ms", "p95 ms", "CPU ms", "kB"
        )
        for each in self.timings:
            table.add_row(
                each.name,
                f"{1000 * each.median:,.1f}",
                f"{1000 * percentile(each.seconds, 0.95):,.1f}",
                f"{1000 * each.cpu:,.1f}",
                f"{each.transferred / 1000:,.1f}",
                _met(each.is_met(busy=self.is_busy)),
            )
        return table

    def _bytes(self) -> Table:
        table = _table("first visit, kB", "page", "page", "scripts", "styles")
        for each in self.weights:
            sizes = (f"{size / 1000:,.1f}" for size in (each.page, each.scripts, each.styles))
            table.add_row(each.name, *sizes, _met(each.is_met))
        return table

    def _loads(self) -> Table:
        table = _table(
            "open pages, per second: one viewer and many",
            "page",
            "pages drawn",
            "statements",
            "of one",
            "transactions",
            "rows read",
            "server CPU, ms",
        )
        for each in self.watched:
            one, many = each.one, each.many
            table.add_row(
                each.name,
                f"{one.pages:,} / {many.pages:,}",
                f"{one.statements:,.1f} / {many.statements:,.1f}",
                f"{each.ratio:.2f}x",
                f"{one.transactions:,.1f} / {many.transactions:,.1f}",
                f"{one.rows:,.0f} / {many.rows:,.0f}",
                f"{1000 * one.cpu:,.0f} / {1000 * many.cpu:,.0f}",
                _met(each.is_met),
            )
        return table


def _table(title: str, first: str, *columns: str) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD)
    table.add_column(first)
    for each in columns:
        table.add_column(each, justify="right")
    table.add_column("met")
    return table


def _met(is_met: bool | None) -> str:
    return {None: "", True: "[green]yes[/]", False: "[red]NO[/]"}[is_met]
