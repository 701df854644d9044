"""Owns what is sent to a terminal for a picture: the lines that are not as they were."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from windlass.cli.sparks import ASCII

_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
"""So that a terminal that can shows the lines all at once."""
_PLAIN = ASCII | str.maketrans("…▸↑↓●○✓▏", "~>^v*o+|")


class Painter:
    """Draws pictures one after the other, each as the difference to the one before.

    Colours are those that the environment says the terminal has; none with NO_COLOR. Where the
    encoding knows none of our signs, plain ones stand for them.
    """

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding
        self._before: list[str] = []
        self._console = Console(
            file=io.StringIO(),
            force_terminal=True,
            width=1_000,
            markup=False,
            highlight=False,
            emoji=False,
            soft_wrap=True,
            legacy_windows=False,
        )

    def forget(self) -> None:
        """Know nothing of what the terminal shows: the next picture is drawn as a whole."""
        self._before = []

    def paint(self, lines: Sequence[Text], width: int) -> bytes:
        """Return what makes the terminal show these lines; nothing if it does already."""
        drawn = [self._drawn(line, width) for line in lines]
        changed = [
            f"\x1b[{row};1H{line}"
            for row, line in enumerate(drawn, 1)
            if row > len(self._before) or self._before[row - 1] != line
        ]
        if not self._before:
            changed.insert(0, "\x1b[2J")
        self._before = drawn
        return self.encoded(_BEGIN + "".join(changed) + _END) if changed else b""

    def encoded(self, text: str) -> bytes:
        """Return text as the terminal understands it."""
        if "█".encode(self._encoding, "ignore"):
            return text.encode(self._encoding, "replace")
        return text.translate(_PLAIN).encode(self._encoding, "replace")

    def _drawn(self, line: Text, width: int) -> str:
        with self._console.capture() as capture:
            self._console.print(line, end="", no_wrap=True)
        # At the right edge there is nothing to erase, and it would take the last character.
        return capture.get() + ("\x1b[K" if line.cell_len < width else "")
