"""Owns small pieces of Markdown: tables, anchors, code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def slug(text: str) -> str:
    """Return a text as part of an anchor."""
    return re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-")


def marked(anchor: str, text: str) -> str:
    """Return a text to which a link can lead."""
    return f'<span id="{anchor}"></span>{text}'


def code(text: str) -> str:
    """Return a text as code, also inside a table."""
    return f"`{text}`" if text else ""


def cell(text: str) -> str:
    """Return a text for a cell of a table: in one line, its bars escaped."""
    return " ".join(text.split()).replace("|", "\\|")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    lines = [head, ["---"] * len(head), *([cell(each) for each in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
