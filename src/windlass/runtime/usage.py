"""Owns how much memory a process and its descendants use, as seen from outside through /proc."""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
IS_VISIBLE = (_PROC / "self" / "statm").exists()
"""Whether this system tells what another process uses."""


def memory_of(pid: int, *, at_most: int) -> int:
    """Return how many bytes of memory a process and its descendants hold; 0 if it is gone.

    What a fork shares with its parent is in both their sizes. Where the sum would be too much, it
    is therefore counted again, in shares, which takes longer.
    """
    family = _family(pid)
    used = sum(map(resident, family))
    if used > at_most and len(family) > 1:
        return sum(map(_share, family))
    return used


def _family(pid: int) -> list[int]:
    """Return a process and its descendants."""
    family = [pid]
    for member in family:
        for children in (_PROC / str(member) / "task").glob("*/children"):
            family += [int(child) for child in _read(children).split()]
    return family


def resident(pid: int) -> int:
    """Return how many bytes of memory a process holds by itself; 0 if that cannot be told."""
    fields = _read(_PROC / str(pid) / "statm").split()
    return int(fields[1]) * _PAGE if fields else 0


def _share(pid: int) -> int:
    for line in _read(_PROC / str(pid) / "smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return resident(pid)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""  # It ended between two looks.
