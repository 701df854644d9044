"""Owns the comparison of the output that a page shows with the output of the command above it.

Numbers, times, ids, directories and the width of columns differ from run to run. An id that a page
shows stands for the one that was printed there, so that later commands can name it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_ID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[0-9a-f]{10}\b|\b[0-9a-f]{8}\b"
_VARIES = re.compile(
    rf"(?P<id>{_ID})"
    r"|(?P<worker>\b[\w.-]+:\d+:[0-9a-f]{8}\b)"
    r"|(?P<line>[─━]+)"
    r"|(?P<path>(?:/[\w.-]+)+/(?=[\w.-]))"
    r"|(?P<number>\d[\d.,:TZ+-]*(?:ms|µs|s|m|h|d)?(?![\w.]))"
    r"|(?P<space>\s+)"
)


class Exchange(NamedTuple):
    """A command of a page, and the lines that the page shows below it."""

    command: str
    shown: list[str]


def exchanges(text: str) -> Iterator[Exchange]:
    """Yield the commands of a console block, each with its output."""
    found: list[Exchange] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append(Exchange(line.removeprefix("$ "), []))
        elif line.strip() and found:
            found[-1].shown.append(line)
    yield from found


class Transcript:
    """What a page shows, beside what was printed."""

    def __init__(self) -> None:
        self._real: dict[str, str] = {}

    def translate(self, command: str) -> str:
        """Return a command of the page with the ids that were printed in this run."""
        for shown, real in self._real.items():
            command = command.replace(shown, real)
        return command

    def missing(self, shown: list[str], printed: str) -> list[str]:
        """Return the lines of the page that were not printed, in their order; `…` skips some."""
        lines = iter(printed.splitlines())
        return [line for line in shown if line.strip() != "…" and not self._find(line, lines)]

    def _find(self, shown: str, lines: Iterator[str]) -> bool:
        pattern, ids = _pattern(shown.strip())
        for line in lines:
            if (match := re.fullmatch(pattern, line.strip())) is not None:
                self._real.update(zip(ids, match.groups(), strict=True))
                return True
        return False


def _pattern(line: str) -> tuple[str, list[str]]:
    """Return the pattern of a shown line, and the ids that its groups stand for."""
    made, ids, end = "", [], 0
    for match in _VARIES.finditer(line):
        made += re.escape(line[end : match.start()])
        end = match.end()
        if match["id"]:
            ids.append(match["id"])
            made += f"([0-9a-f-]{{{len(match['id'])}}})"
        else:
            made += _ANY[match.lastgroup or ""]
    return made + re.escape(line[end:]), ids


_ANY = {
    "worker": r"[\w.-]+:\d+:[0-9a-f]{8}",
    "line": "[─━]+",
    "path": r"(?:/[\w.-]+)*/",
    "number": r"\d[\d.,:TZ+-]*(?:ms|µs|s|m|h|d)?",
    "space": r"\s+",
}
