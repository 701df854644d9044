"""Owns the independent ledger: what handlers did, written where the system under test cannot reach.

Every line is one `write` to a file opened with O_APPEND, so that lines of many processes never mix
and a process that is killed leaves whole lines only.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import NamedTuple
from uuid import UUID


class Entry(NamedTuple):
    """One effect: who did what, for which attempt of which job, and when."""

    what: str
    job: str
    attempt: int
    pid: int
    at: float


class Ledger:
    """A file of effects."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, what: str, job: UUID, attempt: int) -> None:
        """Append an effect; the kernel puts it behind everything that is there."""
        entry = Entry(what, str(job), attempt, os.getpid(), time.time())
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, json.dumps(entry).encode() + b"\n")
        finally:
            os.close(descriptor)

    def entries(self, what: str | None = None, job: UUID | None = None) -> list[Entry]:
        """Return the effects, in their order: all, or those of one sort or one job."""
        if not self._path.exists():
            return []
        found = [Entry(*json.loads(line)) for line in self._path.read_text().splitlines()]
        return [
            entry
            for entry in found
            if what in (None, entry.what) and (job is None or entry.job == str(job))
        ]
