"""Owns the gauges by which a worker measures itself; most are given the time."""

from __future__ import annotations

import math
import time
from collections import deque


class CpuGauge:
    """Measures how many CPUs this process used since the last reading."""

    def __init__(self) -> None:
        self._wall, self._used = time.monotonic(), time.process_time()

    def read(self) -> float:
        """Return CPU seconds for each second of the clock."""
        wall, used = time.monotonic(), time.process_time()
        share = (used - self._used) / max(wall - self._wall, 1e-3)
        self._wall, self._used = wall, used
        return share


class Average:
    """An exponential average over about a second, of values that each held for a while."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.value = 0.0
        self._weight = 0.0

    def add(self, value: float, lasted: float) -> None:
        """Add a value that held for `lasted` seconds."""
        fade = math.exp(-lasted / self._seconds)
        total = self.value * self._weight * fade + value * (1 - fade)
        self._weight = self._weight * fade + (1 - fade)
        self.value = total / self._weight if self._weight else 0.0

    def reset(self) -> None:
        self.value = self._weight = 0.0


class Peak:
    """The highest of the values within a window of time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._seen: deque[tuple[float, float]] = deque()

    def add(self, value: float, now: float) -> float:
        """Add a value, and return the highest within the window."""
        while self._seen and self._seen[0][0] < now - self._seconds:
            self._seen.popleft()
        # A lower value before a higher one can never be the highest again.
        while self._seen and self._seen[-1][1] <= value:
            self._seen.pop()
        self._seen.append((now, value))
        return self._seen[0][1]


class Typical:
    """The median of the last few values, which a single outlier does not move."""

    def __init__(self, count: int) -> None:
        self._least = count // 2 + 1
        self._seen: deque[float] = deque(maxlen=count)

    def add(self, value: float) -> float | None:
        """Add a value, and return the median; None while there are too few."""
        self._seen.append(value)
        if (count := len(self._seen)) < self._least:
            return None
        # Not statistics.median: that module imports fractions and decimals into every program.
        ordered = sorted(self._seen)
        return (ordered[(count - 1) // 2] + ordered[count // 2]) / 2

    def reset(self) -> None:
        self._seen.clear()
