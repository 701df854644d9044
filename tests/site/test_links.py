"""The check of the built site finds links that lead nowhere, and requests to other origins."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.site.links import broken_links, foreign_requests, read_site

PAGE = """
<html><head>{head}</head><body><h2 id="slots">Slots</h2>{body}</body></html>
"""


def site(directory: Path, *, head: str = "", body: str = "") -> Path:
    (directory / "runbooks").mkdir()
    (directory / "runbooks" / "index.html").write_text(PAGE.format(head="", body=""))
    (directory / "logo.png").write_bytes(b"")
    (directory / "index.html").write_text(PAGE.format(head=head, body=body))
    return directory


def problems(directory: Path) -> list[str]:
    documents = read_site(directory)
    return [*broken_links(directory, documents), *foreign_requests(directory, documents)]


@pytest.mark.parametrize(
    "body",
    [
        '<a href="runbooks/index.html">there</a>',
        '<a href="runbooks/">there</a>',
        '<a href="#slots">there</a>',
        '<a href="runbooks/index.html#slots">there</a>',
        '<img src="logo.png">',
        '<a href="https://example.org/">a link to elsewhere loads nothing</a>',
        '<a href="mailto:ada@example.org">mail</a>',
    ],
)
def test_a_link_that_leads_somewhere_is_fine(tmp_path: Path, body: str) -> None:
    assert problems(site(tmp_path, body=body)) == []


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('<a href="missing.html">x</a>', "missing.html leads nowhere"),
        ('<a href="runbooks/missing.html#slots">x</a>', "leads nowhere"),
        ('<a href="#threads">x</a>', "#threads has no such heading"),
        ('<a href="runbooks/index.html#threads">x</a>', "#threads has no such heading"),
        ('<img src="missing.png">', "missing.png leads nowhere"),
    ],
)
def test_a_link_or_anchor_that_leads_nowhere_is_found(
    tmp_path: Path, body: str, problem: str
) -> None:
    (found,) = problems(site(tmp_path, body=body))
    assert found.startswith("index.html: ")
    assert problem in found


@pytest.mark.parametrize(
    "head",
    [
        '<link rel="preconnect" href="https://fonts.gstatic.com">',
        '<link rel="stylesheet" href="https://fonts.googleapis.com/css?family=Inter">',
        '<script src="https://unpkg.com/shim"></script>',
        '<script src="//unpkg.com/shim"></script>',
        '<style>@import "https://fonts.googleapis.com/css";</style>',
        "<style>body { background: url(https://example.org/x.png) }</style>",
    ],
)
def test_a_request_to_another_origin_is_found(tmp_path: Path, head: str) -> None:
    (found,) = problems(site(tmp_path, head=head))
    assert "serve it from the site itself" in found


def test_a_font_of_another_origin_in_a_style_sheet_is_found(tmp_path: Path) -> None:
    (tmp_path / "site.css").write_text("@font-face { src: url('https://example.org/inter.woff2') }")
    (found,) = problems(site(tmp_path))
    assert found.startswith("site.css: loads https://example.org/inter.woff2")


def test_a_relation_that_is_not_fetched_may_be_elsewhere(tmp_path: Path) -> None:
    head = '<link rel="canonical" href="https://windlass.example.org/">'
    assert problems(site(tmp_path, head=head)) == []
