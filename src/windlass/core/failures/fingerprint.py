"""Owns which errors are the same error: by kind, type, place and message, less what varies."""

from __future__ import annotations

import re
from hashlib import sha256

from windlass.core.jobs.job import ErrorInfo

_LENGTH = 10
_VARIES = (
    (re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"), "<id>"),
    (re.compile(r"0x[0-9a-fA-F]+"), "<address>"),
    (re.compile(r"'[^'\n]*'|\"[^\"\n]*\""), "<text>"),
    (re.compile(r"\b(?=[a-fA-F]*\d)[0-9a-fA-F]{8,}\b"), "<id>"),
    (re.compile(r"\d+(?:[.,:]\d+)*"), "<number>"),
)
_FRAME = re.compile(r'^  File "([^"\n]+)", line \d+, in (.+)$', re.MULTILINE)
_NEXT = "\n\nwhich "


def fingerprint(kind: str, error: ErrorInfo) -> str:
    """Return a short name for an error: the same whenever it is, in all likelihood, the same fault.

    Numbers, ids and quoted text in the message do not count, nor does the line: only where it was
    raised, by file and function, so that a release does not make old errors new.
    """
    parts = (kind, error.type, place(error), pattern(error.message))
    return sha256("\n".join(parts).encode(errors="replace")).hexdigest()[:_LENGTH]


def is_fingerprint(text: str) -> bool:
    """Return whether a text can be the name of an error, and not only its beginning."""
    return re.fullmatch(rf"[0-9a-f]{{{_LENGTH}}}", text) is not None


def pattern(message: str) -> str:
    """Return the first line of a message with placeholders for what varies."""
    line = message.strip().partition("\n")[0][:500]
    for varying, instead in _VARIES:
        line = varying.sub(instead, line)
    return line


def place(error: ErrorInfo) -> str:
    """Return where an error was raised: the file's name and the function."""
    frames = _FRAME.findall(error.traceback.partition(_NEXT)[0])
    if not frames:
        return ""
    file, function = frames[-1]
    return f"{file.replace(chr(92), '/').rpartition('/')[2]}:{function}"
