"""The pages of the reference, generated from the code at every build.

A chapter says which names of the code must have a place in it; `tools.site.coverage` compares.
"""

from __future__ import annotations

from tools.site.reference import (
    api,
    commands,
    errors,
    json_fields,
    metrics,
    options,
    settings,
    sql,
    states,
)
from tools.site.reference.chapter import Chapter, Page
from tools.site.reference.overview import overview

CHAPTERS: tuple[Chapter, ...] = (
    options.CHAPTER,
    settings.CHAPTER,
    commands.CHAPTER,
    api.CHAPTER,
    errors.CHAPTER,
    states.CHAPTER,
    json_fields.CHAPTER,
    metrics.CHAPTER,
    sql.CHAPTER,
)
"""Every chapter, in the order of the navigation."""


def generated_pages() -> list[Page]:
    """Return all pages of the reference."""
    pages = [page for chapter in CHAPTERS for page in chapter.pages()]
    return [overview(CHAPTERS), *pages]
