"""Owns what the system tells of processes: who belongs to whom, their CPU time and memory.

CPU time is the scheduler's own account, in nanoseconds: steadier than the wall on a machine that
others use, too.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_GONE = (FileNotFoundError, ProcessLookupError, PermissionError)
_KIB = 1024
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The memory of a process, in bytes."""

    resident: int
    """All that it has in memory, also what it shares with others."""
    own: int
    """What would be free without it."""


def is_there() -> bool:
    """Tell whether this system keeps the accounts that are read here."""
    return (_PROC / "self" / "schedstat").exists() and (_PROC / "self" / "smaps_rollup").exists()


def family(pid: int) -> list[int]:
    """Return a process and all that descend from it, parents first."""
    offspring: defaultdict[int, list[int]] = defaultdict(list)
    for child, parent in _parents():
        offspring[parent].append(child)
    found = [pid]
    for each in found:
        found += sorted(offspring[each])
    return found


def parent(pid: int) -> int:
    """Return the parent of a process."""
    return int(_stat(_PROC / str(pid))[1])


def children(pid: int) -> list[int]:
    """Return the children of a process, but not theirs."""
    return sorted(child for child, parent in _parents() if parent == pid)


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the CPU time of these processes, with that of their children that have ended."""
    return sum(_cpu(_PROC / str(pid)) for pid in pids)


def busy_seconds() -> float:
    """Return the CPU time that all CPUs together were in use, also by others on the same iron."""
    user, nice, system, _idle, _waiting, *interrupts = map(
        int, (_PROC / "stat").read_text().partition("\n")[0].split()[1:9]
    )
    return (user + nice + system + sum(interrupts)) / _TICKS


def all_seconds(pids: Iterable[int]) -> float:
    """Return the CPU time of these processes with all that have ended: threads and children.

    It counts in the ticks of `busy_seconds`, with which it compares; for short times,
    `cpu_seconds` is more exact.
    """
    spent = 0
    for pid in pids:
        with suppress(*_GONE):
            spent += sum(map(int, _stat(_PROC / str(pid))[11:15]))
    return spent / _TICKS


def memory(pid: int) -> Memory:
    """Return the memory of a process."""
    sizes: dict[str, int] = {}
    for line in (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()[1:]:
        name, size, *_ = line.split()
        sizes[name.rstrip(":")] = int(size) * _KIB
    return Memory(resident=sizes["Rss"], own=sizes["Private_Clean"] + sizes["Private_Dirty"])


def connections(pid: int, port: int) -> int:
    """Return how many connections a process has to a port, by TCP."""
    to_port = {inode for inode, remote in _sockets(pid) if remote == port}
    found = 0
    with suppress(*_GONE):
        for path in (_PROC / str(pid) / "fd").iterdir():
            with suppress(*_GONE):
                found += str(path.readlink()).removeprefix("socket:[").removesuffix("]") in to_port
    return found


def _sockets(pid: int) -> Iterator[tuple[str, int]]:
    """Yield the inode and the remote port of every socket that a process can see."""
    for line in (_PROC / str(pid) / "net" / "tcp").read_text().splitlines()[1:]:
        fields = line.split()
        yield fields[9], int(fields[2].rpartition(":")[2], 16)


def _parents() -> Iterator[tuple[int, int]]:
    for path in _PROC.iterdir():
        if path.name.isdigit():
            with suppress(*_GONE):
                yield int(path.name), int(_stat(path)[1])


def _stat(process: Path) -> list[str]:
    """Return what the system tells of a process, from its state on."""
    # The name in parentheses may hold anything, so what is behind the last one counts.
    return (process / "stat").read_text().rpartition(")")[2].split()


def _cpu(process: Path) -> float:
    spent = 0.0
    with suppress(*_GONE):
        spent += sum(map(int, _stat(process)[13:15])) / _TICKS
        for thread in (process / "task").iterdir():
            with suppress(*_GONE):
                spent += int((thread / "schedstat").read_text().split()[0]) / 1e9
    return spent
