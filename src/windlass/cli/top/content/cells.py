"""Owns text in cells: harmless to a terminal, as wide as all terminals agree on, cut to fit."""

from __future__ import annotations

import re
import unicodedata

from rich.cells import cell_len
from rich.text import Text

from windlass.core.values.text import inert

_JOINERS = re.compile("[\u200c\u200d\ufe00-\ufe0f\U000e0100-\U000e01ef\U0001f3fb-\U0001f3ff]")
"""Characters that join others to one glyph: terminals do not agree on its width."""
_MAX_MARKS = 2
_FLAGS = {0x1F1E6 + number: chr(ord("A") + number) for number in range(26)}


def printable(text: str) -> str:
    """Return text that can neither steer a terminal nor take more cells than are counted for it."""
    text = unicodedata.normalize("NFC", _JOINERS.sub("", inert(text)))
    if text.isascii():
        return text
    characters: list[str] = []
    marks = 0
    for character in text.translate(_FLAGS):
        marks = marks + 1 if unicodedata.category(character).startswith("M") else 0
        if marks <= _MAX_MARKS:
            characters.append(character)
    return "".join(characters)


def fitted(text: Text, width: int, *, right: bool = False) -> Text:
    """Return text of exactly `width` cells; longer text ends with an ellipsis."""
    if cell_len(text.plain) > width:
        text = text.copy()
        text.truncate(width, overflow="ellipsis")
        if cell_len(text.plain) > width:  # Half of a wide character would be left.
            text.right_crop(1)
    spaces = " " * (width - cell_len(text.plain))
    return Text.assemble(spaces, text) if right else Text.assemble(text, spaces)


def clipped(text: Text, width: int) -> Text:
    return fitted(text, width) if text.cell_len > width else text
