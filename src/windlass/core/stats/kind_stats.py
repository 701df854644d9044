"""Owns the figures of a kind, and how much work its jobs are: from its record of the last hour."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from msgspec import Struct, field

from windlass.core.claims.room import Pool
from windlass.core.metrics import histogram
from windlass.core.stats.kind_history import KindStats, Window, percentiles

_RATE_WINDOWS = 2
"""How many of the last windows the rate of runs is taken over."""
_RECORD_SECONDS = 15.0
"""Seconds: the least interval at which workers record their counts."""
_RECORDED_SECONDS = 20.0
"""Seconds after which a worker that runs jobs of a kind has recorded them."""
_MAX_RUNS_A_JOB = 10
"""The most runs that a job may have had, on average, for its end to show its work."""


class KindFigures(Struct, frozen=True, kw_only=True):
    """A kind: the outcomes of its runs within the last hour, their durations and waits."""

    name: str
    runs: int
    completed: int
    failed: int
    """Runs that failed; `retried` and `dead` are the outcomes for their jobs."""
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
    """Seconds from when jobs were due until they were started."""
    busy: float
    """The slots it uses on average: the rate times the mean duration."""
    history: tuple[int, ...]
    """Runs in each five minutes of the last hour, oldest first, and `failures`: failed ones."""
    failures: tuple[int, ...]
    as_of: datetime | None = None
    """When a worker last recorded runs of it: the figures are those of that moment."""


class Work(Struct, frozen=True, kw_only=True):
    """The work of the jobs of the last hour: how many have ended, and the seconds of all runs."""

    jobs: float = 0.0
    runs: float = 0.0
    seconds: float = 0.0
    in_pools: Mapping[Pool, float] = field(default_factory=dict)
    """How many of these seconds were in threads, and in isolated processes."""

    @property
    def shares(self) -> Mapping[Pool, float]:
        """Which share of the work is done in threads, and in isolated processes."""
        return {pool: spent / self.seconds for pool, spent in self.in_pools.items() if spent}

    @property
    def again(self) -> bool:
        """Whether nearly all runs are of jobs that are retried, and have not ended."""
        return self.jobs > 0 and self.runs > _MAX_RUNS_A_JOB * self.jobs

    @property
    def each(self) -> float | None:
        """Seconds of a slot that a job takes in all; None: too few have ended."""
        return self.seconds / self.jobs if self.jobs and not self.again else None


def kind_of(name: str, record: KindStats, now: datetime, since: datetime | None) -> KindFigures:
    """Make the figures of a kind; `since` is when the first known worker was started."""
    windows = record.slots(now)
    hour, recent = _sum(windows), _sum(windows[-_RATE_WINDOWS:])
    began = max(windows[-_RATE_WINDOWS].at, since.timestamp() if since is not None else 0.0)
    # Runs since the last record are missing: a rate over that time, too, would be too small.
    end = max(min(record.at, now.timestamp()), now.timestamp() - _RECORDED_SECONDS)
    rate = recent.runs / max(end - began, _RECORD_SECONDS)
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
        busy=rate * (histogram.mean(recent.durations) or 0.0),
        history=tuple(window.runs for window in windows),
        failures=tuple(window.failed for window in windows),
        as_of=datetime.fromtimestamp(record.at, UTC) if record.at else None,
    )


def work_in(
    queue: str, records: Mapping[str, KindStats], now: datetime, pools: Mapping[str, Pool]
) -> Work:
    """Return the work of the jobs of a queue; `pools` says which kinds run in threads, or isolated.

    Kinds are recorded for all their queues together; one that is in several counts in each by the
    share of its jobs that left it.
    """
    jobs = runs = seconds = 0.0
    in_pools = dict.fromkeys(pools.values(), 0.0)
    for name, record in records.items():
        share = record.left.get(queue, 0) / max(sum(record.left.values()), 1)
        if share > 0:
            hour = _sum(record.slots(now))
            jobs += share * (hour.completed + hour.dead + hour.cancelled)
            runs += share * hour.runs
            spent = share * hour.runs * (histogram.mean(hour.durations) or 0.0)
            seconds += spent
            if name in pools:
                in_pools[pools[name]] += spent
    return Work(jobs=jobs, runs=runs, seconds=seconds, in_pools=in_pools)


def _sum(windows: Iterable[Window]) -> Window:
    found = Window()
    for window in windows:
        found += window
    return found
