"""Owns the store's own record of how long jobs take: per kind, for the last hour, by all workers.

`kindstats:<kind>` holds windows of five minutes. In each: how many jobs came to which end, and the
buckets of their times (`core.latency`). Who wants percentiles needs no Prometheus for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from windlass.core.job import Json
from windlass.core.latency import add_sparse, quantile, total
from windlass.core.metrics import NAMES, OTHER

RECORD = "kindstats:"
"""How the names of the records begin."""
WINDOW = timedelta(minutes=5)
SPAN = timedelta(hours=1)
KEPT = timedelta(days=1)
"""After which a kind of which nothing was heard is forgotten."""


class Window(Struct, frozen=True, kw_only=True):
    """What happened to the jobs of a kind within some minutes, or is to be added to that."""

    at: float = 0.0
    """When it began, as a Unix time."""
    completed: int = 0
    failed: int = 0
    retried: int = 0
    dead: int = 0
    cancelled: int = 0
    durations: list[int] = []
    """Buckets of how long runs took, sparsely; `waits` of how long jobs had waited before."""
    waits: list[int] = []

    @property
    def runs(self) -> int:
        """How many runs have ended."""
        return total(self.durations)

    def __add__(self, other: Window) -> Window:
        return Window(
            at=self.at,
            completed=self.completed + other.completed,
            failed=self.failed + other.failed,
            retried=self.retried + other.retried,
            dead=self.dead + other.dead,
            cancelled=self.cancelled + other.cancelled,
            durations=add_sparse(self.durations, other.durations),
            waits=add_sparse(self.waits, other.waits),
        )


class KindStats(Struct, frozen=True, kw_only=True):
    """What is recorded of a kind. `left` counts the jobs that left each queue for good, ever.

    Queues beyond a bound are counted together, as `other`; one that has a name of its own keeps it.
    """

    windows: list[Window] = []
    left: dict[str, int] = {}
    at: float = 0.0
    """When somebody last added to it."""

    def lately(self, now: datetime, span: timedelta = SPAN) -> Window:
        """Return what happened within the last hour, or less: the windows that end in it."""
        since = (now - span).timestamp()
        found = Window(at=since)
        for window in self.windows:
            if window.at + WINDOW.total_seconds() > since:
                found += window
        return found


def read_stats(record: Json | None) -> KindStats:
    """Return what a record says; one that cannot be read says nothing, and is begun anew."""
    try:
        return msgspec.convert(record or {}, KindStats)
    except msgspec.ValidationError:
        return KindStats()


def recorded(record: Json | None, news: Window, left: Mapping[str, int], now: datetime) -> Json:
    """Return the record of a kind after what one worker has to add to it."""
    known = read_stats(record)
    begin = _window_of(now)
    oldest = (now - SPAN - WINDOW).timestamp()
    windows = [each for each in known.windows if oldest < each.at <= begin]
    if windows and windows[-1].at == begin:
        windows[-1] += news
    else:
        windows.append(replace(news, at=begin))
    both = _both(known.left, left)
    made: Json = msgspec.to_builtins(KindStats(windows=windows, left=both, at=now.timestamp()))
    return made


def _both(known: Mapping[str, int], news: Mapping[str, int]) -> dict[str, int]:
    """Add counts up; who comes after there are as many names as there may be is `other`."""
    both = {OTHER: 0}
    for name, count in (*known.items(), *news.items()):
        called = name if name in both or len(both) <= NAMES else OTHER
        both[called] = both.get(called, 0) + count
    return {name: count for name, count in both.items() if count or name != OTHER}


def is_forgotten(record: Json, now: datetime) -> bool:
    """Say whether nothing was heard of a kind for so long that its record may go."""
    return read_stats(record).at < (now - KEPT).timestamp()


def percentiles(buckets: list[int]) -> dict[str, float]:
    """Return p50, p95 and p99 of times in seconds; nothing if there are no times."""
    found = {name: quantile(buckets, share) for name, share in _PERCENTILES.items()}
    return {name: seconds for name, seconds in found.items() if seconds is not None}


def _window_of(now: datetime) -> float:
    seconds = now.astimezone(UTC).timestamp()
    return seconds - seconds % WINDOW.total_seconds()


_PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
