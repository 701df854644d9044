"""Owns the figures that a worker process publishes: counts, gauges, liveness, a cluster sample.

The process writes them into a file shared with its supervisor, so that they can be read while the
process is stuck, and after it has died.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from windlass.core.metrics.cluster_series import series_of
from windlass.core.metrics.exposition import Buckets, Labels, Series, Value, exposition
from windlass.core.metrics.families import FAMILIES
from windlass.core.records import Json

Counts = dict[str, list[tuple[Labels, float]]]
Histograms = dict[str, list[tuple[Labels, list[int], float]]]


class Life(Struct, frozen=True, kw_only=True):
    """Liveness, by the clock that all processes of a machine share (`time.monotonic`)."""

    serves: bool = False
    """Whether the process claims jobs: it has started, and is not draining."""
    beat_at: float = 0.0
    """When its lease was last renewed."""
    asked_at: float = 0.0
    """When the store last answered a claim or a query for operator requests."""
    lease: float = 30.0

    def is_ready(self, now: float, contact_seconds: float = 15.0) -> bool:
        """Return whether the process serves, keeps its lease and reaches the store."""
        kept = now - self.beat_at < self.lease
        return self.serves and kept and now - self.asked_at < max(contact_seconds, self.lease / 2)


class Figures(Struct, frozen=True, kw_only=True):
    """The counts of a worker process since its start, and its liveness."""

    counts: Counts = {}
    histograms: Histograms = {}
    gauges: dict[str, float] = {}
    life: Life = Life()
    sample: Json | None = None
    """The cluster-wide figures, last read from the store."""
    sampled_at: float = 0.0
    """When that sample was taken, by the same clock."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Figures).decode


def written(figures: Figures) -> bytes:
    return _encode(figures)


def read(data: bytes) -> Figures | None:
    """Return figures from bytes; None if they are unreadable, as from another release."""
    try:
        return _decode(data)
    except msgspec.MsgspecError:
        return None


class Totals:
    """The sums of the counts of several processes, ended ones included: counters never fall.

    Series that do not fit their family, as from another release, are left out.
    """

    def __init__(self) -> None:
        self._counts: dict[str, dict[Labels, float]] = {}
        self._histograms: dict[str, dict[Labels, Buckets]] = {}

    def add(self, figures: Figures) -> None:
        for name, counted in figures.counts.items():
            known = self._counts.setdefault(name, {})
            for labels, count in counted:
                if not _fits(name, labels):
                    continue
                known[labels] = known.get(labels, 0.0) + count
        for name, seen in figures.histograms.items():
            buckets = self._histograms.setdefault(name, {})
            for labels, counts, total in seen:
                if not _fits(name, labels, counts):
                    continue
                buckets[labels] = _sum(buckets.get(labels), counts, total)

    def copy(self) -> Totals:
        made = Totals()
        made._counts = {name: dict(counts) for name, counts in self._counts.items()}
        made._histograms = {name: dict(seen) for name, seen in self._histograms.items()}
        return made

    def values(self) -> dict[str, Series]:
        return {**self._counts, **self._histograms}


def _fits(name: str, labels: Labels, counts: list[int] | None = None) -> bool:
    family = FAMILIES.get(name)
    if family is None or len(labels) != len(family.labels):
        return False
    return counts is None or len(counts) == len(family.bounds) + 1


def _sum(known: Buckets | None, counts: list[int], total: float) -> Buckets:
    if known is None:
        return Buckets(counts, total)
    added = [one + other for one, other in zip(known.counts, counts, strict=True)]
    return Buckets(added, known.total + total)


class Process(NamedTuple):
    """A worker process, as known to the server of its metrics."""

    figures: Figures
    lag: float
    """Seconds since its event loop last made progress."""
    beat_at: float
    """When its lease was last renewed, by the process or its supervisor."""

    def is_ready(self, now: float) -> bool:
        """Return whether the process serves, keeps its lease and reaches the store."""
        return replace(self.figures.life, beat_at=self.beat_at).is_ready(now)

    def gauges(self, now: float) -> dict[str, float]:
        """Return the gauges of the process; ages also grow while it is stuck."""
        life = self.figures.life
        if not life.asked_at:  # Nothing was published yet.
            return {"windlass_up": 0.0, "windlass_loop_lag_seconds": round(self.lag, 3)}
        return {
            "windlass_up": float(self.is_ready(now)),
            "windlass_lease_seconds": life.lease,
            "windlass_loop_lag_seconds": round(self.lag, 3),
            "windlass_heartbeat_age_seconds": round(max(now - self.beat_at, 0.0), 3),
            "windlass_store_contact_age_seconds": round(max(now - life.asked_at, 0.0), 3),
            **self.figures.gauges,
        }


def page(
    processes: Mapping[str, Process],
    *,
    now: float,
    others: Iterable[Figures] = (),
    gone: Totals | None = None,
    supervisor: Mapping[str, float] | None = None,
) -> str:
    """Return the metrics page of some processes, and of the cluster as they know it.

    `others` are processes with counts only, `gone` those that have ended.
    """
    totals = Totals() if gone is None else gone.copy()
    for figures in (*(each.figures for each in processes.values()), *others):
        totals.add(figures)
    of_processes: dict[str, dict[Labels, Value]] = {}
    for name, process in processes.items():
        for family, value in process.gauges(now).items():
            of_processes.setdefault(family, {})[(name,)] = value
    values: dict[str, Series] = {
        **totals.values(),
        **of_processes,
        **{family: {(): value} for family, value in (supervisor or {}).items()},
        **_of_cluster([each.figures for each in processes.values()], now),
    }
    return exposition(FAMILIES.values(), values)


def _of_cluster(processes: Iterable[Figures], now: float) -> dict[str, Series]:
    known = [each for each in processes if each.sample is not None]
    newest = max(known, key=lambda each: each.sampled_at, default=None)
    if newest is None or newest.sample is None:
        return {}
    return series_of(newest.sample, age=round(max(now - newest.sampled_at, 0.0), 3))
