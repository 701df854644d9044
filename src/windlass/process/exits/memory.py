"""Owns the memory use of a process and its descendants, as seen from outside through /proc."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

_PROC = Path("/proc")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_CGROUP_MOUNT = Path("/sys/fs/cgroup")
IS_VISIBLE = (_PROC / "self" / "statm").exists()
"""Whether this system shows the memory of another process."""


def memory_of(pid: int, *, at_most: int) -> int:
    """Return the bytes of memory that a process and its descendants hold; 0 if it is gone.

    Memory that a fork shares with its parent is in both sizes. Where the sum exceeds `at_most`, it
    is therefore counted again, proportionally, which takes longer.
    """
    family = _family(pid)
    used = sum(map(resident, family))
    if used > at_most and len(family) > 1:
        return sum(map(_share, family))
    return used


def _family(pid: int) -> list[int]:
    family = [pid]
    for member in family:
        for children in (_PROC / str(member) / "task").glob("*/children"):
            family += [int(child) for child in _read(children).split()]
    return family


def resident(pid: int) -> int:
    """Return the bytes of memory that a process holds by itself; 0 if unknown."""
    fields = _read(_PROC / str(pid) / "statm").split()
    return int(fields[1]) * _PAGE_BYTES if fields else 0


def _share(pid: int) -> int:
    for line in _read(_PROC / str(pid) / "smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return resident(pid)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""  # The process ended between two looks.


@cache
def memory_limit() -> int | None:
    """Return the bytes of memory available to this process and those beside it.

    That is the limit of its container, or the memory of its host; None where the system does not
    say.
    """
    limits = [_number(_read(path)) for path in _limits_above()]
    fields = dict(line.split(":", 1) for line in _read(_PROC / "meminfo").splitlines())
    total = _number(fields.get("MemTotal", "").removesuffix("kB"))
    found = [each for each in (*limits, None if total is None else total * 1024) if each]
    return min(found, default=None)


def _limits_above() -> list[Path]:
    """Return where the limits of this process's control groups are.

    In a container that is the topmost visible group; a service of systemd has one below it.
    """
    line = next(
        (each for each in _read(_PROC / "self" / "cgroup").splitlines() if "0::" in each), ""
    )
    own = _CGROUP_MOUNT / line.removeprefix("0::").strip("/")
    groups = [own, *own.parents] if own.is_relative_to(_CGROUP_MOUNT) else [_CGROUP_MOUNT]
    found = [each / "memory.max" for each in groups if each.is_relative_to(_CGROUP_MOUNT)]
    return [*found, _CGROUP_MOUNT / "memory" / "memory.limit_in_bytes"]


def _number(text: str) -> int | None:
    """Read a number; a control group without a limit says `max`."""
    return int(text) if text.strip().isdecimal() else None
