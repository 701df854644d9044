"""Owns which names the code of a project can give to steps, as far as its source shows.

A name that is computed may be anything: then nothing is known, and no step is reported.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

_ANYTHING = re.compile(r".*", re.DOTALL)
_INSTALLED = {"site-packages", "dist-packages"}
_SLEEP = re.compile(r"sleep-\d+")


class StepNames:
    """The names that the step calls of a module, and of others of its project, can have."""

    def __init__(self, module: str) -> None:
        self._patterns = set(_in_project(module))

    def may_have(self, name: str) -> bool:
        """Return whether a step, a sleep or a wait of this name may still be called."""
        return any(pattern.fullmatch(name) for pattern in self._patterns)


def _in_project(module: str) -> Iterator[re.Pattern[str]]:
    sources = list(_sources(module))
    if not sources:
        yield _ANYTHING
    for source in sources:
        try:
            yield from patterns_in(source)
        except (SyntaxError, ValueError):
            yield _ANYTHING


def _sources(module: str) -> Iterator[str]:
    """Yield the sources of a module's project: loaded modules beside it, or those of its package.

    An installed package is beside packages of other projects.
    """
    top = module.partition(".")[0]
    root = _root(sys.modules.get(top))
    for name, each in list(sys.modules.items()):
        file = getattr(each, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py"):
            continue
        path = Path(file).resolve()
        is_own = name == top or name.startswith(f"{top}.")
        if is_own or (root is not None and _is_below(path, root)):
            try:
                yield path.read_text("utf-8")
            except (OSError, UnicodeDecodeError):
                continue


def _root(top: ModuleType | None) -> Path | None:
    file = getattr(top, "__file__", None)
    if not isinstance(file, str):
        return None
    path = Path(file).resolve()
    root = path.parent.parent if path.name == "__init__.py" else path.parent
    return None if _INSTALLED & set(root.parts) else root


def _is_below(path: Path, root: Path) -> bool:
    return path.is_relative_to(root) and not _INSTALLED & set(path.parts)


def patterns_in(source: str) -> Iterator[re.Pattern[str]]:
    """Yield what the names of the steps, sleeps and waits in a source look like.

    Raises:
        SyntaxError: it is no Python.
    """
    tree = ast.parse(source)
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "step" and id(node) not in called:
            yield _ANYTHING  # Called by another name, with whatever name for the step.
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield from _of_call(node.func.attr, node)


def _of_call(method: str, call: ast.Call) -> Iterator[re.Pattern[str]]:
    named = next((each.value for each in call.keywords if each.arg == "name"), None)
    first = call.args[0] if call.args else None
    if method == "step" and first is not None:
        yield _pattern(first)
    elif method == "sleep":
        yield _SLEEP if named is None else _pattern(named)
    elif method == "wait_for" and (named or first) is not None:
        yield _pattern(named or first, ending="" if named else r"(#\d+)?")


def _pattern(node: ast.expr | None, ending: str = "") -> re.Pattern[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.compile(re.escape(node.value) + ending)
    if isinstance(node, ast.JoinedStr):
        parts = (
            re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".*"
            for part in node.values
        )
        return re.compile("".join(parts) + ending, re.DOTALL)
    return _ANYTHING
