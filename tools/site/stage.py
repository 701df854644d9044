"""Owns the source of the site: the pages of docs, generated ones, and files that they link to.

A link that leads out of docs, such as to a file of deploy, leads to a copy below `project/`. The
page of an example also has its code.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

from tools.site.examples import code_of, is_example
from tools.site.reference.chapter import Page

_LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
_FENCE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
_DOCS = "docs/"
_REST = "project/"


class Stage:
    """The folder from which the site is built."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root = root
        self._folder = folder
        self._done: set[str] = set()

    def fill(self, generated: Iterable[Page], also: Iterable[str] = ()) -> None:
        """Write all pages; `also` are pages outside of docs, by their paths in the repository.

        A generated page takes the place of a page of docs with the same path, which is for those
        who read the repository.
        """
        shutil.rmtree(self._folder, ignore_errors=True)
        for page in generated:
            self._write(page.path, page.text.encode())
            self._done.add(f"{_DOCS}{page.path}")
        for path in sorted((self._root / "docs").rglob("*")):
            if path.is_file():
                self._add(path.relative_to(self._root).as_posix())
        for name in also:
            self._add(name)

    def _add(self, name: str) -> None:
        if name in self._done:
            return
        self._done.add(name)
        content = (self._root / name).read_bytes()
        if name.endswith(".md"):
            text = self._linked(name, content.decode())
            if is_example(name):
                text += code_of((self._root / name).parent)
            content = text.encode()
        self._write(staged(name), content)

    def _linked(self, page: str, text: str) -> str:
        parts = _FENCE.split(text)
        # Every second part is a fenced block, in which nothing is a link.
        parts[::2] = [
            _LINK.sub(lambda link: link[1] + self._target(page, link[2]) + link[3], each)
            for each in parts[::2]
        ]
        return "".join(parts)

    def _target(self, page: str, link: str) -> str:
        """Return where a link of a page leads on the site."""
        if ":" in link:
            return link
        path = normpath(PurePosixPath(page).parent / link)
        if (self._root / path).is_dir():
            path = f"{path}/README.md"
        if not (self._root / path).is_file():
            return link  # A generated page, or broken: the check of links knows.
        self._add(path)
        return relpath(staged(path), PurePosixPath(staged(page)).parent.as_posix())

    def _write(self, path: str, content: bytes) -> None:
        target = self._folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def staged(path: str) -> str:
    """Return where a file of the repository is on the site."""
    return path.removeprefix(_DOCS) if path.startswith(_DOCS) else _REST + path
