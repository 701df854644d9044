"""Pages can be read in the repository, too: their links lead to files that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.site.reference import CHAPTERS
from tools.site.reference.__main__ import main, readable_chapters

ROOT = Path(__file__).resolve().parents[2]
INDEX = ROOT / "docs/reference/index.md"
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
    text = INDEX.read_text("utf-8")
    assert [chapter.title for chapter in CHAPTERS if f"| {chapter.title} |" not in text] == []


def test_the_reference_in_the_repository_names_the_command_of_every_readable_chapter() -> None:
    named = set(re.findall(r"tools\.site\.reference (\w+)", INDEX.read_text("utf-8")))
    assert named == set(readable_chapters()) - {"commands"}  # That is `windlass --help`.


def test_a_chapter_is_printed_without_what_only_a_browser_reads(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["errors"]) == 0
    printed = capsys.readouterr().out
    assert "\n## JobDead\n" in printed
    assert "**What to do:**" in printed
    assert [
        line
        for text in readable_chapters().values()
        for line in text.splitlines()
        if "<span" in line
    ] == []


@pytest.mark.parametrize("arguments", [[], ["nothing"], ["errors", "states"]])
def test_an_unknown_chapter_is_refused_with_those_there_are(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert "must be one of options, settings" in capsys.readouterr().err
