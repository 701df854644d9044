"""Owns the record of how long jobs take: per kind, for the last hour, over all workers.

`kindstats:<kind>` holds windows of five minutes. In each: how many jobs came to which end, and the
buckets of their times (`core.metrics.histogram`). Percentiles need no Prometheus.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

import msgspec
from msgspec import Struct

from windlass.core.metrics.exposition import NAMES, OTHER
from windlass.core.metrics.histogram import add_sparse, quantile, total
from windlass.core.records import Json

RECORD = "kindstats:"
"""The prefix of the records."""
WINDOW = timedelta(minutes=5)
SPAN = timedelta(hours=1)
KEPT = timedelta(days=1)
"""The age at which an unused record of a kind is deleted."""
ERRORS = 10
"""How many errors of a kind are counted separately in a window; the rest is `other`."""
_MAX_ERRORS = 30
_MAX_LINE = 160


class Seen(Struct, frozen=True, kw_only=True):
    """An error of the runs of a kind: its last message, first and last time."""

    error: str = ""
    first: float = 0.0
    last: float = 0.0


class NewError(Struct, frozen=True, kw_only=True):
    """An error that is new in a window: its last message, and how long ago it came, in seconds."""

    line: str
    first_ago: float = 0.0
    last_ago: float = 0.0


class Window(Struct, frozen=True, kw_only=True):
    """Counts of the jobs of a kind within some minutes, or an addition to them."""

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
    errors: dict[str, int] = {}
    """How many runs failed with which error, by its fingerprint."""

    @property
    def runs(self) -> int:
        """How many runs have ended."""
        return total(self.durations)

    def __add__(self, other: Window) -> Window:
        return Window.of([self, other], self.at)

    @classmethod
    def of(cls, windows: Sequence[Window], at: float) -> Window:
        """Add up several at once: there may be hundreds, and this blocks the event loop."""
        return cls(
            at=at,
            completed=sum(each.completed for each in windows),
            failed=sum(each.failed for each in windows),
            retried=sum(each.retried for each in windows),
            dead=sum(each.dead for each in windows),
            cancelled=sum(each.cancelled for each in windows),
            durations=add_sparse(*[each.durations for each in windows]),
            waits=add_sparse(*[each.waits for each in windows]),
            errors=_all([each.errors for each in windows], ERRORS),
        )


class KindStats(Struct, frozen=True, kw_only=True):
    """The record of a kind. `left` counts the jobs that left each queue for good, ever.

    Queues beyond a bound are counted together, as `other`; a queue that has a name keeps it.
    """

    windows: list[Window] = []
    left: dict[str, int] = {}
    errors: dict[str, Seen] = {}
    """The latest of the errors that are counted in the windows."""
    at: float = 0.0
    """The time of the last addition."""

    def lately(self, now: datetime, span: timedelta = SPAN) -> Window:
        """Return the counts of the last hour, or less: the windows that end in it."""
        since = (now - span).timestamp()
        step = WINDOW.total_seconds()
        return Window.of([each for each in self.windows if each.at + step > since], since)

    def slots(self, now: datetime) -> tuple[Window, ...]:
        """Return a window for each five minutes of the last hour, the current one last.

        Windows of the future are from before the clock was set back, and left out.
        """
        step, last = WINDOW.total_seconds(), window_of(now)
        begins = [last - step * back for back in reversed(range(int(SPAN / WINDOW)))]
        known = {window.at: window for window in self.windows}
        return tuple(known.get(begin) or Window(at=begin) for begin in begins)


def read_stats(record: Json | None) -> KindStats:
    """Return the history in a record; an unreadable one is empty, and begun anew."""
    try:
        return msgspec.convert(record or {}, KindStats)
    except msgspec.ValidationError:
        return KindStats()


def recorded(
    record: Json | None,
    news: Window,
    left: Mapping[str, int],
    now: datetime,
    errors: Mapping[str, NewError] = MappingProxyType({}),
) -> Json:
    """Return the record of a kind with the counts of one worker added.

    `errors` are those that are new in the window, by fingerprint.
    """
    known = read_stats(record)
    begin = window_of(now)
    oldest = (now - SPAN - WINDOW).timestamp()
    windows = [each for each in known.windows if oldest < each.at <= begin]
    if windows and windows[-1].at == begin:
        windows[-1] += news
    else:
        windows.append(Window(at=begin) + news)
    made: Json = msgspec.to_builtins(
        KindStats(
            windows=windows,
            left=_all([known.left, left]),
            errors=_seen(known.errors, errors, windows, now.timestamp()),
            at=now.timestamp(),
        )
    )
    return made


def error_line(text: str) -> str:
    """Return the line that is kept of an error."""
    line = " ".join(text[: 2 * _MAX_LINE].split())
    return line if len(line) <= _MAX_LINE else f"{line[: _MAX_LINE - 1]}…"


def _seen(
    known: Mapping[str, Seen], news: Mapping[str, NewError], windows: Sequence[Window], now: float
) -> dict[str, Seen]:
    # An error that is in no window any more begins anew when it returns.
    counted = {name for window in windows for name in window.errors}
    seen = {name: each for name, each in known.items() if name in counted}
    for name, new in news.items():
        if name in counted:
            # Recorded some seconds later, perhaps after what another worker saw since.
            first, last = now - new.first_ago, now - new.last_ago
            before = seen.get(name) or Seen(first=first, last=last)
            seen[name] = Seen(
                error=error_line(new.line),
                first=min(before.first, first),
                last=min(max(before.last, last), now),
            )
    latest = sorted(seen, key=lambda name: (-seen[name].last, name))[:_MAX_ERRORS]
    return {name: seen[name] for name in latest}


def _all(several: Iterable[Mapping[str, int]], most: int = NAMES) -> dict[str, int]:
    summed = {OTHER: 0}
    for counts in several:
        for name, count in counts.items():
            called = name if name in summed or len(summed) <= most else OTHER
            summed[called] = summed.get(called, 0) + count
    return {name: count for name, count in summed.items() if count or name != OTHER}


def is_forgotten(record: Json, now: datetime) -> bool:
    """Return whether a kind has been silent for so long that its record may be deleted."""
    return read_stats(record).at < (now - KEPT).timestamp()


def percentiles(buckets: list[int]) -> dict[str, float]:
    """Return p50, p95 and p99 of times in seconds; nothing if there are no times."""
    found = {name: quantile(buckets, share) for name, share in _PERCENTILES.items()}
    return {name: seconds for name, seconds in found.items() if seconds is not None}


def window_of(now: datetime) -> float:
    """Return when the current window began."""
    seconds = now.astimezone(UTC).timestamp()
    return seconds - seconds % WINDOW.total_seconds()


_PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
