"""Owns how people write amounts of memory: "512MB", "1.5GiB", or a number of bytes."""

from __future__ import annotations

import re

Size = str | int
_UNITS = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmg]i?b|b)\s*", re.ASCII | re.IGNORECASE)
_LARGEST = 2**50


def size(value: Size) -> int:
    """Read an amount of memory; a bare number is in bytes."""
    count = _read(value)
    if not 0 < count <= _LARGEST:
        raise ValueError(f"memory must be above zero and at most 1 PiB, got {value!r}")
    return count


def human_size(count: int) -> str:
    """Write an amount of memory as people do: `512MB`, `1.5GB`."""
    for unit in ("GB", "MB", "kB"):
        if count >= _UNITS[unit.lower()]:
            shown = f"{count / _UNITS[unit.lower()]:.1f}".removesuffix(".0")
            return f"{shown}{unit}"
    return f"{count}B"


def _read(value: Size) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(
            f"memory must be a number and a unit, got {value!r}; write it like '512MB' or '2GiB'"
        )
    return int(float(match[1]) * _UNITS[match[2].lower()])
