"""Pages can be read in the repository, too: their links lead to files that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.site.reference import CHAPTERS

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for pattern in (
        "*.md",
        "docs/**/*.md",
        "examples/**/*.md",
        "benchmarks/*.md",
        ".github/**/*.md",
    )
    for page in ROOT.glob(pattern)
)
_LINK = re.compile(r"\]\((?!\w+:)([^)\s#]+)(?:#[^)\s]*)?\)")
_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_a_page_leads_to_a_file_of_the_repository(page: str) -> None:
    """Prevents links to generated pages, which only the site has: they are dead on GitHub."""
    text = _FENCE.sub("", (ROOT / page).read_text("utf-8"))
    folder = (ROOT / page).parent
    assert [link for link in _LINK.findall(text) if not (folder / link).exists()] == []


def test_the_reference_in_the_repository_names_every_chapter_of_the_site() -> None:
    text = (ROOT / "docs/reference/index.md").read_text("utf-8")
    assert [chapter.title for chapter in CHAPTERS if f"| {chapter.title} |" not in text] == []
