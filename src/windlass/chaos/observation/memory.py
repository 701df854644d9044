"""Owns the memory of worker processes over the time of a run."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from msgspec import Struct

from windlass.process.exits.memory import resident

_MIN_SAMPLES = 8
"""Fewer say nothing about a quarter of the time."""


class WorkerMemory(Struct, frozen=True, kw_only=True):
    """The resident bytes of a worker in the first and in the last quarter of the time."""

    pid: int
    seconds: float
    first: int
    last: int

    @property
    def growth(self) -> float:
        """How much the last quarter is above the first, as a part of that."""
        return self.last / self.first - 1 if self.first else 0.0


class MemoryWatch:
    """Looks at processes again and again."""

    def __init__(self) -> None:
        self._samples: dict[int, list[tuple[float, int]]] = {}

    def look(self, pids: Iterable[int], now: float) -> None:
        """Note what processes use now; those that have ended are left out."""
        for pid in pids:
            if used := resident(pid):
                self._samples.setdefault(pid, []).append((now, used))

    def figures(self) -> tuple[WorkerMemory, ...]:
        """Return the figures of those that were seen often enough, the longest first."""
        found = [
            _figure(pid, samples)
            for pid, samples in self._samples.items()
            if len(samples) >= _MIN_SAMPLES
        ]
        return tuple(sorted(found, key=lambda each: -each.seconds))


def _figure(pid: int, samples: list[tuple[float, int]]) -> WorkerMemory:
    began, ended = samples[0][0], samples[-1][0]
    quarter = (ended - began) / 4
    first = median(used for at, used in samples if at <= began + quarter)
    last = median(used for at, used in samples if at >= ended - quarter)
    return WorkerMemory(
        pid=pid, seconds=round(ended - began, 1), first=round(first), last=round(last)
    )
