"""Owns processes as the system sees them: who lives, who is below whom, and signals to them all."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """Return the processes below one, as far as the system tells."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, task.read_text().split()):
                found += [child, *descendants(child)]
    return found


def alive(pid: int) -> bool:
    """Say whether a process runs; one that has ended, and whom nobody has buried, does not."""
    state, _ = _state_and_parent(pid)
    return state not in ("Z", "")


def is_child(pid: int, parent: int) -> bool:
    """Say whether a process runs right below another, as the workers of a supervisor do."""
    state, its_parent = _state_and_parent(pid)
    return state not in ("Z", "") and its_parent == parent


def is_stopped(pid: int) -> bool:
    """Say whether a process stands still."""
    return _state_and_parent(pid)[0] == "T"


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to processes at once, as a service manager does to all that it started."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _state_and_parent(pid: int) -> tuple[str, int]:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "", 0
    state, parent, *_ = stat.rpartition(")")[2].split()
    return state, int(parent)
