"""The programs of other libraries on the pages "Coming from" are valid, and import what exists.

They are not run: most need a server of their own. Modules of a reader's project, and packages that
are not installed here, are left out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec

import pytest

from tests.docs.test_docs import PAGES, ROOT, blocks_of

OF_READERS = {"tasks", "shop"}
"""Modules that a reader has, and nobody else."""
COMING_FROM = [page for page in PAGES if page.startswith("docs/coming-from/")]
PROGRAMS = [
    (page, block.text)
    for page in COMING_FROM
    for block in blocks_of(page)
    if block.language == "py"
]
PYTHON_PEERS = ("celery", "rq", "dramatiq", "huey", "procrastinate", "apscheduler")


def imported(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield the modules that a program imports, with the names that it takes from them."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)


@pytest.mark.parametrize(("page", "text"), PROGRAMS)
def test_a_program_of_another_library_imports_what_exists(page: str, text: str) -> None:
    for module, name in imported(text):
        root = module.partition(".")[0]
        if root in OF_READERS or find_spec(root) is None:
            continue
        found = import_module(module)
        is_there = name is None or hasattr(found, name) or find_spec(f"{module}.{name}")
        assert is_there, f"{page}: {module} has no {name}"


@pytest.mark.parametrize("peer", PYTHON_PEERS)
def test_the_page_of_a_peer_shows_its_code_beside_that_of_windlass(peer: str) -> None:
    languages = [block.language for block in blocks_of(f"docs/coming-from/{peer}.md")]
    assert "py" in languages
    assert "python" in languages


def test_every_page_is_in_the_index() -> None:
    (index,) = [page for page in COMING_FROM if page.endswith("index.md")]
    text = (ROOT / index).read_text("utf-8")
    others = [page.rpartition("/")[2] for page in COMING_FROM if page != index]
    assert [name for name in others if f"]({name})" not in text] == []


def test_the_site_shows_both_programs_beside_one_another() -> None:
    """Without this extension, the site would show the blocks within `<div>` as plain text."""
    settings = ROOT / "mkdocs.yml"
    if not settings.exists():
        pytest.skip("there is no site")
    assert "md_in_html" in settings.read_text("utf-8")
