"""Owns the ASCII signs for terminals without Unicode."""

from __future__ import annotations

from typing import TextIO

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from windlass.cli.output.sparklines import ASCII

_PLAIN = ASCII | str.maketrans("…▸↑↓●○✓▏", "~>^v*o+|")


def is_unicode(file: TextIO | None) -> bool:
    """Return whether a file can be written the Unicode signs."""
    return bool("█".encode((file and file.encoding) or "utf-8", "ignore"))


class PlainSigns(LineFilter):
    """Replaces the Unicode signs by ASCII, and other characters that are not ASCII by question
    marks.
    """

    def apply(self, segments: list[Segment], _: Color) -> list[Segment]:
        """Return the segments of a line, as wide as before."""
        return [
            Segment("".join(map(_plain, text)), style, control) for text, style, control in segments
        ]


def _plain(character: str) -> str:
    plain = character.translate(_PLAIN)
    return plain if plain.isascii() else "?".ljust(cell_len(character))[: cell_len(character)]
