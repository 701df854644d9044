"""Refuses files, functions and packages that have grown too large to be read at once.

Run by `make check`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 50
MAX_MODULES = 12

INDEXES = {
    "src/windlass/cli/commands": "one module for each command",
    "src/windlass/testing/conformance": "one module for each part of the contract",
}
"""Packages that may have more modules, and why."""


def main() -> int:
    """Write what is too large with its place; return 1 if there was something, else 0."""
    places = [*_files(), *_packages()]
    for place in places:
        sys.stdout.write(f"{place}\n")
    return 1 if places else 0


def _files() -> Iterator[str]:
    for folder in ("src", "tests", "tools"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name, text = path.relative_to(ROOT).as_posix(), path.read_text("utf-8")
            yield from in_file(name, text)
            if folder == "src":
                yield from in_functions(name, text)


def in_file(name: str, text: str) -> Iterator[str]:
    """Yield the file if it is too long."""
    if (lines := len(text.splitlines())) > MAX_FILE_LINES:
        yield f"{name}: must have at most {MAX_FILE_LINES} lines, has {lines}; split it by subject"


def in_functions(name: str, text: str) -> Iterator[str]:
    """Yield the functions that are too long; commands of typer, with an option a line, may be."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES and not name.startswith("src/windlass/cli/commands/"):
                yield (
                    f"{name}:{node.lineno}: {node.name} must have at most {MAX_FUNCTION_LINES} "
                    f"lines, has {lines}"
                )


def _packages() -> Iterator[str]:
    for path in sorted((ROOT / "src" / "windlass").rglob("__init__.py")):
        name = path.parent.relative_to(ROOT).as_posix()
        modules = [each.stem for each in path.parent.glob("*.py") if each != path]
        yield from in_package(name, modules)


def in_package(name: str, modules: list[str]) -> Iterator[str]:
    """Yield the package if it has too many modules."""
    if len(modules) > MAX_MODULES and name not in INDEXES:
        yield (
            f"{name}: must have at most {MAX_MODULES} modules, has {len(modules)}; "
            "give some a package"
        )


if __name__ == "__main__":
    sys.exit(main())
