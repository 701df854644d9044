"""Owns the app of isolated handlers that tests run in child processes, and what it noted."""

from __future__ import annotations

import os
from typing import Any


def notes(nursery: Any) -> list[str]:
    return nursery.NOTES.read_text().splitlines() if nursery.NOTES.exists() else []


def pid_in(nursery: Any) -> int:
    """Return the process that a handler has noted, or 0."""
    return next((int(line.split()[1]) for line in notes(nursery) if line.startswith("pid")), 0)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
