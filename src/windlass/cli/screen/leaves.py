"""Owns what the sheets of rows have in common: titles, names with values, lists of lines."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import RenderableType
from rich.text import Text

from windlass.cli import show
from windlass.cli.screen.cells import tame


def title(what: str, name: str) -> Text:
    """Say what is looked into."""
    return Text.assemble((f"{what} ", "dim"), (tame(name), "bold"))


def pairs(told: dict[str, str]) -> RenderableType:
    """Write names and values below each other; those without a value are left out."""
    grid = show.pairs()
    for name, value in told.items():
        if value:
            grid.add_row(name, Text(tame(value)))
    return grid


def listed(lines: Iterable[Text]) -> list[Text]:
    """Write lines, or that there is none."""
    return list(lines) or [Text("  none", "dim")]
