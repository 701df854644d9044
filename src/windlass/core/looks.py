"""Owns looks into values and their JSON: what no store could hold, and where it is."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import msgspec

Hook = Callable[[Any], Any]
"""Makes plain what msgspec does not know."""
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|([\[{])|([\]}])')


def is_utf8(text: str) -> bool:
    """Say whether text has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_not_finite(value: Any) -> bool:
    """Say whether this is NaN or an infinity."""
    return isinstance(value, float) and not math.isfinite(value)


def has_leaf(value: Any, wrong: Callable[[Any], bool], hook: Hook) -> bool:
    """Say whether any leaf is wrong, without recursion and without naming paths: the quick look."""
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
    """Return the path to the first wrong leaf, or nothing if it cannot be told."""
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
