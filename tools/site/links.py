"""Owns the check of the built pages: links and anchors lead somewhere, and nothing is foreign."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from posixpath import normpath
from urllib.parse import unquote, urlsplit

_FOREIGN_CSS = re.compile(r"""(?:url\(\s*['"]?|@import\s+['"])((?:https?:)?//[^'")\s]+)""")
_NOT_FETCHED = {"canonical", "next", "prev", "author", "license", "alternate"}
"""Relations of `<link>` for which a browser sends no request."""


@dataclass
class Document:
    """The links of a page, what it loads, and the places in it to which links can lead."""

    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)

    def has(self, fragment: str) -> bool:
        """Return whether a link with this fragment leads to a place; without one it does."""
        return not fragment or fragment in self.ids


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.document = Document()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.document.ids |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and "href" in given:
            self.document.links.append(given["href"])
        elif tag == "link" and not _NOT_FETCHED & set(given.get("rel", "").split()):
            self.document.loads.append(given.get("href", ""))
        sources = ("src", "srcset", "poster")
        self.document.loads += [given[name] for name in sources if name in given]
        self.document.loads += _FOREIGN_CSS.findall(given.get("style", ""))

    def handle_data(self, data: str) -> None:
        self.document.loads += _FOREIGN_CSS.findall(data)


def read_site(site: Path) -> dict[str, Document]:
    """Read every page of a built site, by its path."""
    found = {}
    for path in sorted(site.rglob("*.html")):
        reader = _Reader()
        reader.feed(path.read_text("utf-8"))
        found[path.relative_to(site).as_posix()] = reader.document
    return found


def broken_links(site: Path, documents: dict[str, Document]) -> Iterator[str]:
    """Yield links and anchors that lead nowhere."""
    for page, document in documents.items():
        for link in sorted({*document.links, *document.loads}):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            path = normpath(f"{page}/../{unquote(parts.path)}") if parts.path else page
            if page == "404.html" and parts.path.startswith("/"):
                path = normpath(parts.path.lstrip("/"))
            path = f"{path}/index.html" if (site / path).is_dir() else path.removeprefix("./")
            if not (site / path).is_file():
                yield f"{page}: {link} leads nowhere; correct the link, or write the page"
            elif path in documents and not documents[path].has(unquote(parts.fragment)):
                yield f"{page}: {link} has no such heading; correct the part after #"


def foreign_requests(site: Path, documents: dict[str, Document]) -> Iterator[str]:
    """Yield what a browser would load from another origin."""
    for page, document in documents.items():
        for load in document.loads:
            if urlsplit(load).netloc:
                yield f"{page}: loads {load}; serve it from the site itself"
    for path in sorted(site.rglob("*.css")):
        name = path.relative_to(site).as_posix()
        for found in _FOREIGN_CSS.findall(path.read_text("utf-8")):
            yield f"{name}: loads {found}; serve it from the site itself"
