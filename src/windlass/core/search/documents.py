"""Owns values inside JSON as a search compares them: as text, the way they are written."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

_INDEX = re.compile(r"[+-]?[0-9]{1,10}")
_SPACE = " \t\n\v\f\r"
_LAST_INDEX = 2**31 - 1


def text_at(document: bytes | str, path: Sequence[str]) -> str | None:
    """Return the value at a path as text; None if there is none, or no plain value.

    Numbers are compared as they are written, so that large ones stay exact: `42` is 42 and "42". A
    step into a list is a number, from its end if it is negative.
    """
    try:
        value = json.loads(document, parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError):
        return None
    for step in path:
        value = _inside(value, step)
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else None


def _inside(value: Any, step: str) -> Any:
    if isinstance(value, dict):
        return value.get(step)
    if isinstance(value, list) and _INDEX.fullmatch(step.lstrip(_SPACE)):
        index = int(step)
        if -len(value) <= index < len(value) and abs(index) <= _LAST_INDEX:
            return value[index]
    return None
