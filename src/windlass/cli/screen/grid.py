"""Owns tables on a screen: columns of fixed width, so that nothing moves when a number changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from windlass.cli.screen.cells import fitted

_GAP = "  "


@dataclass(frozen=True, kw_only=True)
class Field:
    """A column; one with a `rank` may be left out, the greatest first.

    What is left over goes to the columns that grow, the first before the second, up to `most`.
    """

    name: str
    width: int
    most: int = 0
    rank: int = 0
    number: bool = False
    graph: bool = False
    """Whether it is cut on the left, where the oldest is."""


def fit(fields: Sequence[Field], room: int) -> dict[int, int]:
    """Return the fields that fit beside each other, by their index, and how wide each is."""
    kept = {index: field.width for index, field in enumerate(fields)}
    while len(kept) > 1 and _needed(kept) > room:
        least = max(kept, key=lambda index: fields[index].rank)
        if fields[least].rank == 0:
            break
        del kept[least]
    for index in kept:
        spare = room - _needed(kept)
        kept[index] = max(min(kept[index] + spare, max(fields[index].most, fields[index].width)), 1)
    return kept


def line(fields: Sequence[Field], widths: dict[int, int], cells: Sequence[Text]) -> Text:
    """Put cells beside each other, each in its field."""
    return Text(_GAP).join(
        _cell(fields[index], cells[index], width) for index, width in widths.items()
    )


def heading(fields: Sequence[Field], widths: dict[int, int], first: Text) -> Text:
    """Put the names of fields above them, and instead of the first one something else."""
    names = [first, *(Text(field.name) for field in fields[1:])]
    return Text(_GAP).join(
        fitted(names[index], width, right=fields[index].number or fields[index].graph)
        for index, width in widths.items()
    )


def _cell(field: Field, cell: Text, width: int) -> Text:
    if field.graph:
        return cell[-width:]
    return fitted(cell, width, right=field.number)


def _needed(kept: dict[int, int]) -> int:
    return sum(kept.values()) + len(_GAP) * (len(kept) - 1)
