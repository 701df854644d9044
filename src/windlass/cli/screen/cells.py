"""Owns text in cells: harmless, of a width that every terminal agrees on, and cut to fit."""

from __future__ import annotations

import re
import unicodedata

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from windlass.core.text import inert

_JOINERS = re.compile("[\u200c\u200d\ufe00-\ufe0f\U000e0100-\U000e01ef\U0001f3fb-\U0001f3ff]")
"""What makes one glyph of several: terminals do not agree on how wide that is."""
_MARKS = 2
_FLAG, _FLAGS = 0x1F1E6, 26


def tame(text: str) -> str:
    """Return text that can neither steer a terminal nor take more cells than it is counted to."""
    known = unicodedata.normalize("NFC", _JOINERS.sub("", inert(text)))
    return known if known.isascii() else "".join(_told_apart(known))


def fitted(text: Text, width: int, *, right: bool = False) -> Text:
    """Return text of exactly so many cells; what is too long ends with an ellipsis."""
    if cell_len(text.plain) > width:
        text = text.copy()
        text.truncate(width, overflow="ellipsis")
        if cell_len(text.plain) > width:  # Half of a wide character would be left.
            text.right_crop(1)
    spaces = " " * (width - cell_len(text.plain))
    return Text.assemble(spaces, text) if right else Text.assemble(text, spaces)


def cut(text: str, width: int) -> str:
    """Return at most so many cells of text."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + "…" if width > 1 else "…"[:width]


def _told_apart(text: str) -> list[str]:
    """Return characters, flags as their two letters, and not more marks on one than a word has."""
    found: list[str] = []
    marks = 0
    for each in text:
        marks = marks + 1 if unicodedata.category(each).startswith("M") else 0
        flag = ord(each) - _FLAG
        if marks <= _MARKS:
            found.append(chr(ord("A") + flag) if 0 <= flag < _FLAGS else each)
    return found
