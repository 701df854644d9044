"""Owns checks of values and their JSON: which parts no store could hold, and their paths."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

import msgspec

Hook = Callable[[Any], Any]
"""Converts values that msgspec does not know to plain ones."""
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|([\[{])|([\]}])')


def is_utf8(text: str) -> bool:
    """Return whether text has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_not_finite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def has_leaf(value: Any, wrong: Callable[[Any], bool], hook: Hook) -> bool:
    """Return whether any leaf is wrong, without recursion and without paths: the quick check."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            waiting.extend(each.values())
        elif isinstance(each, list | tuple | set | frozenset):
            waiting.extend(each)
        elif isinstance(each, _LEAVES):
            if wrong(each):
                return True
        else:
            plain = msgspec.to_builtins(each, enc_hook=hook)
            waiting.append(plain if isinstance(plain, dict | list | _LEAVES) else None)
    return False


_LEAVES = str | int | float | bytes | None


def find_leaf(value: Any, wrong: Callable[[Any], bool], hook: Hook) -> str:
    """Return the path to the first wrong leaf, or an empty one if it cannot be determined."""
    try:
        waiting = [("", msgspec.to_builtins(value, enc_hook=hook))]
    except RecursionError:
        return ""
    while waiting:
        path, each = waiting.pop()
        if isinstance(each, dict):
            inner = [(f"{path}.{name}" if path else str(name), leaf) for name, leaf in each.items()]
            if (odd := next((name for name in each if wrong(name)), None)) is not None:
                return f"{path}.{odd}" if path else str(odd)
        elif isinstance(each, list | tuple):
            inner = [(f"{path}[{index}]", leaf) for index, leaf in enumerate(each)]
        elif wrong(each):
            return path
        else:
            continue
        waiting.extend(reversed(inner))
    return ""


def depth_of(encoded: bytes, limit: int) -> int:
    """Return how deep JSON is nested; 0 if it has too few brackets to be deeper than the limit."""
    if encoded.count(b"[") + encoded.count(b"{") <= limit:
        return 0
    depth = deepest = 0
    for token in _TOKEN.finditer(encoded):
        if token[1]:
            depth += 1
            deepest = max(deepest, depth)
        elif token[2]:
            depth -= 1
    return deepest


def strict_json(text: str) -> Any:
    """Parse what a person wrote as JSON, without the constants that Python accepts besides.

    Raises:
        ValueError: it is not JSON, or nested too deeply.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
