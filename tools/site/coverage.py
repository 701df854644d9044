"""Owns the check that everything which the code offers has its place in the reference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tools.site.links import Document
from tools.site.reference.chapter import Chapter

_REFERENCE = "reference/"


def without_place(chapters: Iterable[Chapter], documents: dict[str, Document]) -> Iterator[str]:
    """Yield the names of the code that no page of the reference explains."""
    ids = {
        each
        for page, document in documents.items()
        if page.startswith(_REFERENCE)
        for each in document.ids
    }
    for chapter in chapters:
        for name in dict.fromkeys(chapter.names()):
            if chapter.anchor(name) not in ids:
                yield f"{chapter.subject} {name} has no place in the reference; {chapter.remedy}"
