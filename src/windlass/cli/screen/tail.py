"""Owns what is said while a picture is on the terminal: the end of it, to be told afterwards."""

from __future__ import annotations

import io

_KEPT = 10_000


class Tail(io.TextIOBase):
    """A text file that forgets all but the end of what is written, however long that goes on."""

    def __init__(self) -> None:
        self._text = ""

    def writable(self) -> bool:
        """Say that it can be written to."""
        return True

    def write(self, text: str) -> int:
        """Keep the end of what was written by now."""
        self._text = (self._text + text)[-_KEPT:]
        return len(text)

    @property
    def end(self) -> str:
        """What is kept."""
        return self._text
