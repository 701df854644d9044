"""Owns the tables that a run comes to: as markdown, as JSON, and in their places on a page."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

Cell = str | int | float | None
_PLACE = re.compile(r"<!-- capacity:(\w+) -->\n.*?<!-- /capacity -->", re.DOTALL)
_BUSY = 0.5
"""CPUs that others may use before figures are not to be trusted."""
_LARGE = 100
_MIDDLE = 10


class PageMismatch(Exception):
    """A page has no place for a table, so that its figures would be lost."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of measured figures, with the name of its place on the page."""

    name: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    raw: Sequence[Mapping[str, Cell]] = ()
    """What the rows were worked out from, so that a strange figure can be explained."""
    date: str = ""
    """When it was measured: tables of one page may come from several runs."""
    others: float | None = None
    """How many CPUs others used meanwhile, on average; None if it does not matter."""

    @property
    def is_busy(self) -> bool:
        """Whether others used so much of the machine that its rates are too low."""
        return self.others is not None and self.others > _BUSY

    def caption(self) -> str:
        """Tell when it was measured and what others took meanwhile; nothing if nobody knows."""
        if not self.date:
            return ""
        if self.others is None:
            return f"Measured on {self.date}."
        told = f"Measured on {self.date}, while others used {self.others:.1f} CPUs"
        return f"**On a busy machine**: {told}. Rates are too low." if self.is_busy else f"{told}."

    def markdown(self) -> str:
        """Write it as it stands on the page, between the comments that mark its place."""
        rules = ["---", *("---:" for _ in self.head[1:])]
        cells = [list(self.head), rules, *([_shown(cell) for cell in row] for row in self.rows)]
        lines = [f"| {' | '.join(row)} |" for row in cells]
        below = ["", caption] if (caption := self.caption()) else []
        return "\n".join([f"<!-- capacity:{self.name} -->", *lines, *below, "<!-- /capacity -->"])


def spread(values: Sequence[float]) -> str:
    """Write what several rounds came to: the median, and in brackets the least and greatest."""
    middle = _shown(float(statistics.median(values)))
    if len(values) == 1:
        return middle
    return f"{middle} ({_shown(float(min(values)))} to {_shown(float(max(values)))})"


def merged(old: Iterable[Table], new: Iterable[Table]) -> list[Table]:
    """Return the tables of both, where those that were measured again are the new ones."""
    return list({table.name: table for table in (*old, *new)}.values())


def placed(page: str, tables: Iterable[Table]) -> str:
    """Return the page with these tables in their places; whatever else is on it stays.

    Raises:
        PageMismatch: There is no place for one of them.
    """
    written = {table.name: table.markdown() for table in tables}
    if missing := written.keys() - set(names_on(page)):
        told = ", ".join(f"<!-- capacity:{name} -->" for name in sorted(missing))
        raise PageMismatch(
            f"the page has no place for {told}; put it there, and <!-- /capacity -->"
        )
    return _PLACE.sub(lambda match: written.get(match[1], match[0]), page)


def names_on(page: str) -> list[str]:
    """Return the names of the tables that a page has a place for."""
    return [match[1] for match in _PLACE.finditer(page)]


def write(path: Path, tables: Iterable[Table]) -> None:
    """Keep every figure as JSON; whoever is interrupted meanwhile has the old file."""
    document = {"tables": [asdict(table) for table in tables]}
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.new")
    unfinished.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    unfinished.replace(path)


def read(path: Path) -> list[Table]:
    """Return the tables that were kept."""
    return [Table(**table) for table in json.loads(path.read_text("utf-8"))["tables"]]


def _shown(cell: Cell) -> str:
    """Write a figure with no more digits than it is worth."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, int) or abs(cell) >= _LARGE:
        return f"{cell:,.0f}"
    return f"{cell:.1f}" if abs(cell) >= _MIDDLE else f"{cell:.2f}"
