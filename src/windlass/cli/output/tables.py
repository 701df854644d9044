"""Owns tables that fit: on a narrow terminal the lesser columns go, before any id is cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
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
        self._natural_widths = [len(column.name) for column in columns]

    def add(self, *cells: Text) -> None:
        """Add a row, with a cell for each column."""
        self._rows.append(cells)
        widths = zip(self._natural_widths, cells, strict=True)
        self._natural_widths = [max(width, cell.cell_len) for width, cell in widths]

    def print(self, console: Console) -> None:
        """Print the columns that fit; without a terminal, all.

        The lines are put together here, since a table of `rich` takes a millisecond for three rows.
        """
        kept = self._kept(console.width)
        spare = max(console.width - self._needed(kept), 0)
        # If even the least columns do not fit, the terminal wraps lines, but no id is cut.
        widths = [self._width(index, spare) for index in kept]
        page = Text()
        self._write(page, kept, widths, [Text(column.name, "bold") for column in self._columns])
        line = "-" if console.options.ascii_only else "─"
        page.append(line * (sum(widths) + _GAP * (len(widths) - 1)) + "\n", "dim")
        for row in self._rows:
            self._write(page, kept, widths, row)
        console.print(page, soft_wrap=True, end="")

    def _write(
        self, page: Text, kept: Sequence[int], widths: Sequence[int], row: Sequence[Text]
    ) -> None:
        blanks = 0
        for index, width in zip(kept, widths, strict=True):
            cell = row[index]
            if cell.cell_len > width:
                cell = cell.copy()
                cell.truncate(width, overflow="ellipsis")
            pad = width - cell.cell_len
            is_number = self._columns[index].number
            page.append(" " * (blanks + pad * is_number))
            page.append_text(cell)
            blanks = _GAP + pad * (not is_number)
        page.append("\n")

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
        natural = self._natural_widths[index]
        if self._columns[index].stretch:
            return min(natural, _STRETCH_LEAST + spare)
        return natural
