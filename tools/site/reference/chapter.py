"""Owns the shape of a chapter of the reference: its pages, and the names that must be in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple


class Page(NamedTuple):
    """A generated page: its path below docs, and its Markdown."""

    path: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Chapter:
    """A chapter: what it is about, its pages, and what the code says must be in it."""

    subject: str
    """What each of its names is: "setting", "metric"."""
    title: str
    summary: str
    path: str
    """Its first page."""
    names: Callable[[], Iterable[str]]
    """Every name that the code has, found independently of the pages."""
    anchor: Callable[[str], str]
    """The id in the HTML at which a name is explained."""
    pages: Callable[[], Iterable[Page]]
    remedy: str
    """Where to document a name that has no place."""
