"""Owns text from outside before it is stored or shown: storable, inert, bounded."""

from __future__ import annotations

import re
from collections.abc import Iterable

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_LINE_CONTROL = re.compile(_CONTROL.pattern[:-1] + "\n\t]")


def storable(text: str, limit: int) -> str:
    """Escape what no store can hold (NUL, lone surrogates); cut the middle of long text."""
    if len(text) > limit:
        half = limit // 2
        left_out = f"\n... {len(text) - 2 * half:,} characters left out ...\n"
        text = text[:half] + left_out + text[len(text) - half :]
    return _UNSTORABLE.sub(_escape, text)


def inert(text: str) -> str:
    """Escape control characters, so that no text can move a cursor, colour a line or fake one."""
    return _LINE_CONTROL.sub(_escape, text)


def inert_lines(text: str) -> str:
    """Escape control characters but for line breaks and tabs: for tracebacks and other blocks."""
    return _CONTROL.sub(_escape, text)


def plural(number: int, noun: str) -> str:
    """Write `1 job`, `2,000 jobs`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "surrogatepass").decode("ascii")


def listed(names: Iterable[str], most: int = 5) -> str:
    """Write the first names, and how many more there are: `a, b and 3 more`."""
    known = list(names)
    rest = f" and {len(known) - most} more" if len(known) > most else ""
    return ", ".join(known[:most]) + rest
