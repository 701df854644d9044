"""Owns the times in which the processes under chaos had work, and no CPU to do it.

The kernel counts for how long a process waited in its queue. Processes of a chain wait one after
the other, so their times are added up.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from windlass.chaos.laws.history import Share


class CpuShare:
    """Looks at processes again and again."""

    def __init__(self, now: float) -> None:
        self._before: dict[int, float] = {}
        self._looked_at = now
        self.shares: list[Share] = []

    def look(self, pids: Iterable[int], now: float) -> None:
        """Note the part of the time since the last look in which none of them waited."""
        seen = {pid: seconds for pid in pids if (seconds := _waited(pid)) is not None}
        waited = sum(seconds - self._before.get(pid, 0.0) for pid, seconds in seen.items())
        part = 1 - waited / max(now - self._looked_at, 0.001) if seen else _part_by_load()
        part = round(min(max(part, 0.0), 1.0), 3)
        self.shares.append(Share(began=self._looked_at, ended=now, part=part))
        self._before, self._looked_at = seen, now


def _waited(pid: int) -> float | None:
    """Return the seconds for which a process waited for a CPU; None: that cannot be seen."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    return None


def _part_by_load() -> float:
    """Return the same where the kernel counts no waiting: by the load average."""
    with suppress(OSError):
        return min(1.0, (os.cpu_count() or 1) / max(os.getloadavg()[0], 0.01))
    return 1.0
