"""Owns the columns of a panel: of fixed width, so that the layout is stable while
numbers change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from windlass.cli.top.content.cells import fitted

_GAP = "  "


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column; one with a `rank` may be left out, the greatest first.

    Spare width goes to the columns that can grow, the first before the second, up to `max_width`.
    """

    name: str
    width: int
    max_width: int = 0
    rank: int = 0
    number: bool = False
    graph: bool = False
    """Whether it is cut on the left, where the oldest values are."""


def fit(columns: Sequence[Column], room: int) -> dict[int, int]:
    """Return the columns that fit beside each other, by index, and the width of each."""
    kept = {index: column.width for index, column in enumerate(columns)}
    while len(kept) > 1 and _total(kept) > room:
        least = max(kept, key=lambda index: columns[index].rank)
        if columns[least].rank == 0:
            break
        del kept[least]
    for index, width in kept.items():
        widest = max(columns[index].max_width, columns[index].width)
        kept[index] = max(min(width + room - _total(kept), widest), 1)
    return kept


def line(columns: Sequence[Column], widths: dict[int, int], cells: Sequence[Text]) -> Text:
    """Put the cells of a row beside each other, each in its column."""
    return Text(_GAP).join(
        cells[index][-width:]
        if columns[index].graph
        else fitted(cells[index], width, right=columns[index].number)
        for index, width in widths.items()
    )


def heading(columns: Sequence[Column], widths: dict[int, int], title: Text) -> Text:
    """Put the names of columns above them, with `title` in place of the first."""
    names = [title, *(Text(column.name) for column in columns[1:])]
    return Text(_GAP).join(
        fitted(names[index], width, right=columns[index].number or columns[index].graph)
        for index, width in widths.items()
    )


def _total(widths: dict[int, int]) -> int:
    return sum(widths.values()) + len(_GAP) * (len(widths) - 1)
