"""Owns what keys are called: makes names of the bytes that a terminal sends for them."""

from __future__ import annotations

import codecs
import re

ESCAPE = "\x1b"
MOST_PASTED = 65_536
"""Characters of a paste after which it is too long to be meant: all but its end is dropped."""
_KEYPAD_ENTER = "\x1bOM"
_PASTE, _PASTED = "\x1b[200~", "\x1b[201~"
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[@-~])")
_BEGUN = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)?")
_PLAIN = {
    "\r": "enter",
    "\n": "enter",
    "\t": "tab",
    "\x08": "backspace",
    "\x0c": "redraw",
    "\x15": "clear",
    "\x7f": "backspace",
}
_SEQUENCES = {
    "A": "up",
    "B": "down",
    "C": "right",
    "D": "left",
    "H": "home",
    "F": "end",
    "Z": "back",
    "1~": "home",
    "7~": "home",
    "4~": "end",
    "8~": "end",
    "5~": "page up",
    "6~": "page down",
}


class Keys:
    """Reads bytes as they come, in whatever pieces; keys that it does not know, it leaves out.

    A key is the character that it types, or a name of two letters and more. What is pasted is one
    key, `paste:` and the text: nobody confirms something by pasting a `y`.
    """

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("ignore").decode
        self._rest = ""

    @property
    def waiting(self) -> bool:
        """Whether there may be more to come of a key: an escape may be one, or begin another."""
        return bool(self._rest)

    @property
    def pasting(self) -> bool:
        """Whether a paste has begun and not ended: it may pause for as long as a line does."""
        return self._rest.startswith(_PASTE)

    def feed(self, data: bytes) -> list[str]:
        """Return the keys that are complete by now."""
        self._rest += self._decode(data)
        found: list[str] = []
        while self._rest and (key := self._next()) is not None:
            if key:
                found.append(key)
        return found

    def flush(self) -> list[str]:
        """Return what an unfinished sequence was, if nothing came after it: the key Escape.

        A paste goes on until its end mark comes: the rest of it would be keys that were pressed.
        """
        if self.pasting:
            return []
        rest, self._rest = self._rest, ""
        return ["escape"] if rest == ESCAPE else []

    def give_up(self) -> None:
        """Take a paste as lost whose end does not come, so that keys are keys again."""
        self._rest = ""

    def _next(self) -> str | None:
        """Take a key off what was read: "" if it is not known, None if it is not complete."""
        text = self._rest
        if text.startswith(_PASTE):
            pasted, end, rest = text.removeprefix(_PASTE).partition(_PASTED)
            if not end:
                if len(text) > MOST_PASTED:
                    # Not less than this: the end mark may be there in part.
                    self._rest = _PASTE + text[1 - len(_PASTED) :]
                return None
            self._rest = rest
            return f"paste:{pasted}"
        if text[0] != ESCAPE:
            self._rest = text[1:]
            return _PLAIN.get(text[0], text[0] if text[0].isprintable() else "")
        if match := _SEQUENCE.match(text):
            self._rest = text[match.end() :]
            if match[0] == _KEYPAD_ENTER:
                return "enter"
            # With a modifier, as in `1;5A`, it is the same key to us.
            parts = match[0][2:].rpartition(";")
            last = parts[2][-1:] if parts[1] and match[0][-1] != "~" else match[0][2:]
            return _SEQUENCES.get(last, "")
        if _BEGUN.fullmatch(text):
            return None
        # An escape, and then something else: with Alt, a key means nothing here.
        self._rest = text[2:] if text[1] != ESCAPE else text[1:]
        return "escape" if text[1] == ESCAPE else ""
