"""Owns the first page of the reference: what is where."""

from __future__ import annotations

from collections.abc import Sequence
from posixpath import relpath

from tools.site.reference.chapter import Chapter, Page
from tools.site.reference.markdown import table

_PATH = "reference/index.md"


def overview(chapters: Sequence[Chapter]) -> Page:
    """Return the page that leads to all others."""
    rows = [
        (f"[{each.title}]({relpath(each.path, 'reference')})", each.summary) for each in chapters
    ]
    text = (
        "# Reference\n\n"
        "Generated from the code of this release: every option, setting, command, error, state, "
        "field, metric and function. How to use them is in the guides; these pages are for looking "
        "things up, also by the search.\n\n"
    )
    return Page(_PATH, text + table(["page", "what it has"], rows))
