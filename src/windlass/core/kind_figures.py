"""Owns the figures of a kind, and how much work its jobs are: from its record of the last hour."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from windlass.core import latency
from windlass.core.kind_stats import KindStats, Window, percentiles

_RECENT = 2
"""How many of the last windows say how many runs there are a second."""
_LEAST = 15.0
"""Seconds: workers record what they have counted no sooner than that."""
_TRIES = 10
"""How many runs a job may have had, on the average, for its end to tell what it took."""


@dataclass(frozen=True, kw_only=True)
class KindFigures:
    """A kind: what became of its runs within the last hour, how long they took, and waited."""

    name: str
    runs: int
    completed: int
    failed: int
    """Runs that failed; `retried` and `dead` are what became of their jobs."""
    retried: int
    dead: int
    cancelled: int
    error_rate: float | None
    """The share of the runs that failed; None: there was no run."""
    rate: float
    """Runs a second, over the last five to ten minutes."""
    durations: Mapping[str, float]
    """Seconds: `p50`, `p95`, `p99`; nothing where there was no run."""
    waits: Mapping[str, float]
    """Seconds between when jobs were due and when they were started."""
    busy: float
    """How many slots it has in use, on the average: the rate times the mean duration."""
    history: tuple[int, ...]
    """Runs in each five minutes of the last hour, oldest first, and `failures`: failed ones."""
    failures: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Work:
    """What the jobs of the last hour took: how many of them have ended, and all their runs."""

    jobs: float = 0.0
    runs: float = 0.0
    seconds: float = 0.0

    @property
    def again(self) -> bool:
        """Whether nearly all runs are of jobs that are tried again, and have not ended."""
        return self.jobs > 0 and self.runs > _TRIES * self.jobs

    @property
    def each(self) -> float | None:
        """Seconds of a slot that a job takes until it is done with; None: too few have ended."""
        return self.seconds / self.jobs if self.jobs and not self.again else None


def kind_of(name: str, record: KindStats, now: datetime, since: datetime) -> KindFigures:
    """Make the figures of a kind; `since` is when somebody first counted anything at all."""
    windows = record.slots(now)
    hour, recent = _sum(windows), _sum(windows[-_RECENT:])
    began = max(windows[-_RECENT].at, since.timestamp())
    rate = recent.runs / max(now.timestamp() - began, _LEAST)
    tried = max(hour.runs, hour.failed)
    return KindFigures(
        name=name,
        runs=hour.runs,
        completed=hour.completed,
        failed=hour.failed,
        retried=hour.retried,
        dead=hour.dead,
        cancelled=hour.cancelled,
        error_rate=hour.failed / tried if tried else None,
        rate=rate,
        durations=percentiles(hour.durations),
        waits=percentiles(hour.waits),
        busy=rate * (latency.mean(recent.durations) or 0.0),
        history=tuple(window.runs for window in windows),
        failures=tuple(window.failed for window in windows),
    )


def work_in(queue: str, records: Iterable[KindStats], now: datetime) -> Work:
    """Return what the jobs of a queue took.

    Kinds are recorded for all their queues together; one that is in several counts in each by the
    share of its jobs that left it.
    """
    jobs = runs = seconds = 0.0
    for record in records:
        share = record.left.get(queue, 0) / max(sum(record.left.values()), 1)
        if share > 0:
            hour = _sum(record.slots(now))
            jobs += share * (hour.completed + hour.dead + hour.cancelled)
            runs += share * hour.runs
            seconds += share * hour.runs * (latency.mean(hour.durations) or 0.0)
    return Work(jobs=jobs, runs=runs, seconds=seconds)


def _sum(windows: Iterable[Window]) -> Window:
    found = Window()
    for window in windows:
        found += window
    return found
