"""Owns the code of an example on its page: in the repository it is beside the README."""

from __future__ import annotations

from pathlib import Path

_LEFT_OUT = ("__init__.py", "migrations/")
"""Files of an example without code that a reader looks for."""


def is_example(name: str) -> bool:
    """Return whether a page of the repository is the README of an example."""
    match Path(name).parts:
        case ("examples", _, "README.md"):
            return True
    return False


def code_of(folder: Path) -> str:
    """Return a chapter with the modules of an example; the one that runs it comes last."""
    chapter = "\n## The code\n"
    for path in sorted(folder.rglob("*.py"), key=_order):
        name = path.relative_to(folder).as_posix()
        if not any(part in name for part in _LEFT_OUT):
            chapter += f"\n`{name}`:\n\n```python\n{path.read_text('utf-8').strip()}\n```\n"
    return chapter


def _order(path: Path) -> tuple[int, bool, str]:
    return len(path.parts), path.name == "__main__.py", path.as_posix()
