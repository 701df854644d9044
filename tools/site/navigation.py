"""Owns the check that every page can be reached by the navigation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

_ELSEWHERE = ("decisions/", "runbooks/", "project/")
"""Pages that are reached by the lists of their folder."""
_NEEDED = ("project/examples/",)
"""Pages that have to be there all the same."""


def outside_navigation(config: Path, source: Path) -> Iterator[str]:
    """Yield pages that the navigation lacks."""
    listed = set(_paths(yaml.safe_load(config.read_text("utf-8"))["nav"]))
    for path in sorted(source.rglob("*.md")):
        name = path.relative_to(source).as_posix()
        is_elsewhere = name.startswith(_ELSEWHERE) and not name.startswith(_NEEDED)
        if name not in listed and not is_elsewhere:
            yield f"{name} is not in the navigation; add it to nav of mkdocs.yml"


def _paths(nav: Any) -> Iterator[str]:
    match nav:
        case str():
            yield nav
        case list():
            for each in nav:
                yield from _paths(each)
        case dict():
            for each in nav.values():
                yield from _paths(each)
