"""Owns what others take of the CPUs while a part is measured."""

from __future__ import annotations

import os
import time

from benchmarks.capacity import proc

_SHORTEST = 1.0
"""Seconds below which ticks tell nothing."""


class Others:
    """All processes of the machine but ours and the server's, from now on."""

    def __init__(self, server: int) -> None:
        self._server = server
        self._began = time.monotonic()
        self._before = self._spent()

    def cpus(self) -> float | None:
        """Return how many CPUs they used on average; None if too little time has passed."""
        seconds = time.monotonic() - self._began
        if seconds < _SHORTEST:
            return None
        return max(self._spent() - self._before, 0.0) / seconds

    def _spent(self) -> float:
        ours = {*proc.family(os.getpid()), *proc.family(self._server)}
        return proc.busy_seconds() - proc.all_seconds(ours)
