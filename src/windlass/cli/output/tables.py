"""Owns tables that fit: on a narrow terminal the lesser columns go, before any id is cut."""

from __future__ import annotations

from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

_GAP = 2
_STRETCH_LEAST = 16


@dataclass(frozen=True)
class Column:
    """A column; one with a `rank` may be left out, the greatest first.

    A number is aligned to the right. A column that stretches takes the remaining width and cuts the
    rest, the others are as wide as their content.
    """

    name: str
    rank: int = 0
    number: bool = False
    stretch: bool = False


class Listing:
    """Rows that are printed as a table."""

    def __init__(self, *columns: Column) -> None:
        self._columns = columns
        self._rows: list[tuple[Text, ...]] = []

    def add(self, *cells: Text) -> None:
        """Add a row, with a cell for each column."""
        self._rows.append(cells)

    def print(self, console: Console) -> None:
        """Print the columns that fit; without a terminal, all."""
        kept = self._kept(console.width)
        spare = max(console.width - self._needed(kept), 0)
        table = Table(
            box=box.SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
            padding=(0, _GAP - 1, 0, 0),
            header_style="bold",
            border_style="dim",
        )
        for index in kept:
            column = self._columns[index]
            table.add_column(
                column.name,
                justify="right" if column.number else "left",
                no_wrap=True,
                overflow="ellipsis" if column.stretch else "fold",
                width=self._width(index, spare if column.stretch else 0),
            )
        for row in self._rows:
            table.add_row(*(row[index] for index in kept))
        # If even the least columns do not fit, the terminal wraps lines, but no id is cut.
        console.width = max(console.width, self._needed(kept))
        console.print(table)

    def _kept(self, room: int) -> list[int]:
        kept = list(range(len(self._columns)))
        while self._needed(kept) > room:
            least = max(kept, key=lambda index: self._columns[index].rank)
            if self._columns[least].rank == 0:
                break
            kept.remove(least)
        return kept

    def _needed(self, kept: list[int]) -> int:
        widths = (self._width(index) for index in kept)
        return sum(widths) + _GAP * (len(kept) - 1)

    def _width(self, index: int, spare: int = 0) -> int:
        column = self._columns[index]
        cells = (row[index].cell_len for row in self._rows)
        natural = max(len(column.name), max(cells, default=0))
        return min(natural, _STRETCH_LEAST + spare) if column.stretch else natural
