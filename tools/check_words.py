"""Refuses words that do not belong in messages, comments, docstrings, pages and names of tests.

Run by `make check`. A line that needs one of them all the same says so with `words: allow`.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

SOURCES = ("src/windlass", "tools", "examples")
"""Folders whose string literals, docstrings and comments are checked."""

PAGES = (
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md"),
    *("docs/*.md", "docs/decisions/*.md", "docs/runbooks/*.md", "examples/*/README.md"),
    *("docs/coming-from/*.md", "docs/tutorial/*.md", "docs/reference/*.md", "examples/README.md"),
    "benchmarks/README.md",
)

PHRASES = (
    *("whoever", "so many", "shall", "told", "in vain", "time and again"),  # words: allow
    *("for want of", "mend(?:s|ed|ing)?", "heed(?:s|ed|ing)?"),  # words: allow
    *("takes its time", "how it stands", "of ours"),  # words: allow
)
BANNED = re.compile(rf"\b({'|'.join(PHRASES)})\b".replace(" ", r"\s+"), re.IGNORECASE)
ALLOWED = "words: allow"
RIDDLE = re.compile(
    r"\bdef (test_(?:what|who|whatever)_\w*|test_\w*_(?:told|whoever)(?:_\w*)?)\("  # words: allow
)
"""Names of tests that hide the subject of their law."""


def main() -> int:
    """Write every banned word with its place; return 1 if there was one, else 0."""
    places = sorted({*_in_sources(), *_in_pages(), *_in_tests()})
    for place in places:
        sys.stdout.write(f"{place}\n")
    return 1 if places else 0


def _in_sources() -> Iterator[str]:
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield from in_source(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))
        for script in ("*.sql", "*.lua"):
            for path in sorted((ROOT / folder).rglob(script)):
                yield from in_script(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))


def in_source(name: str, text: str) -> Iterator[str]:
    """Yield the places of banned words in the literals, docstrings and comments of a module."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            is_code = "::" in node.value
            if not is_code and ALLOWED not in lines[node.lineno - 1]:
                yield from _places(name, node.lineno, node.value)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and ALLOWED not in token.string:
            yield from _places(name, token.start[0], token.string)


def in_script(name: str, text: str) -> Iterator[str]:
    """Yield the places of banned words in a script of SQL or Lua."""
    for number, line in enumerate(text.splitlines(), start=1):
        if ALLOWED not in line:
            yield from _places(name, number, line)


def _in_tests() -> Iterator[str]:
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        yield from in_test_names(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))


def in_test_names(name: str, text: str) -> Iterator[str]:
    """Yield the places of tests whose names do not say what their law is about."""
    for number, line in enumerate(text.splitlines(), start=1):
        if (riddle := RIDDLE.search(line)) and ALLOWED not in line:
            yield f"{name}:{number}: {riddle[1]} must name its subject; see CONTRIBUTING.md"


def _in_pages() -> Iterator[str]:
    for pattern in PAGES:
        for path in sorted(ROOT.glob(pattern)):
            yield from in_page(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))


def in_page(name: str, text: str) -> Iterator[str]:
    """Yield the places of banned words in a page, outside of its blocks of code."""
    is_code = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("```"):
            is_code = not is_code
        if not is_code and ALLOWED not in line:
            yield from _places(name, number, line)


def _places(name: str, line: int, text: str) -> Iterator[str]:
    for word in BANNED.findall(text):
        yield f"{name}:{line}: {word!r} is not a word for people; see CONTRIBUTING.md"


if __name__ == "__main__":
    sys.exit(main())
