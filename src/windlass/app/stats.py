"""Owns how `app.stats` counts jobs and reads workers' records; `core.stats` makes the figures."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from windlass.core.claims.lanes import Sweep
from windlass.core.errors import StoreError
from windlass.core.jobs.queries import ErrorGroups
from windlass.core.payloads.redaction import Redaction
from windlass.core.policies.breaker_record import RECORD as BREAKERS
from windlass.core.policies.pauses import PAUSES, Pauses
from windlass.core.records import Json
from windlass.core.stats import kind_history
from windlass.core.stats.cluster_sample import (
    CLUSTER,
    PREFIX,
    Sample,
    SampleInputs,
    counted,
    read_sample,
)
from windlass.core.stats.depths import Depths
from windlass.core.stats.live_counts import Trend, live_walk, with_rates
from windlass.core.stats.sample_history import HISTORY, read_history
from windlass.core.stats.stats import Stats, StatsFacts, stats_of
from windlass.core.workers import WorkerRecord
from windlass.store import StoreQueries

_STALE = timedelta(minutes=1)
"""The age at which rates are too old to be shown: no worker samples any more."""
_MAX_GROUPS = 250
_CACHED_FOR = timedelta(seconds=15)


class Slow:
    """A cache of records that are slow to read and change slowly, for callers that ask repeatedly.

    They are read no more often than workers record them; `forget` makes the next call read them
    anew.
    """

    def __init__(self, store: StoreQueries, kind: str | None = None) -> None:
        self._store = store
        self._kind = kind
        self.reads = 0
        """How often the store was read: another number, another answer."""
        self.forget()

    def forget(self) -> None:
        """Read all of it anew at the next call."""
        self._next = 0.0
        self._round = object()

    async def read(self) -> tuple[Mapping[str, Json], ErrorGroups]:
        """Return the records of kinds, and the errors that jobs died of."""
        if time.monotonic() >= self._next:
            round_ = self._round
            kinds = await self._store.records(kind_history.RECORD)
            groups = await self._store.error_groups(kind=self._kind, limit=_MAX_GROUPS)
            self._known = kinds, groups
            self.reads += 1
            # Changes during the read may be missing.
            if round_ is self._round:
                self._next = time.monotonic() + _CACHED_FOR.total_seconds()
        return self._known


async def gather_stats(
    store: StoreQueries,
    redaction: Redaction,
    *,
    queue: str | None = None,
    kind: str | None = None,
) -> Stats:
    """Return the figures of a store, of everything, or of a queue, or of a kind."""
    facts = await gather_facts(store, redaction, slow=Slow(store, kind))
    return stats_of(facts, queue=queue, kind=kind)


async def gather_facts(
    store: StoreQueries,
    redaction: Redaction,
    *,
    slow: Slow | None = None,
    trend: Trend | None = None,
) -> StatsFacts:
    """Return the data from which `stats_of` makes figures.

    A caller that asks repeatedly passes the same `slow` and `trend`. The errors are those of the
    kind of `slow`: figures of one kind need one of that kind, since the errors of all kinds are
    cut off after the most frequent ones.
    """
    kinds, groups = await (slow or Slow(store)).read()
    look = await _Look.at(store, kinds)
    recorded = look.sampled()
    trend = trend or Trend()
    return StatsFacts(
        now=look.now,
        sample=await look.counted(store, recorded, trend),
        sampled_at=None if recorded is None else datetime.fromtimestamp(recorded.at, UTC),
        trend=trend,
        history=read_history(look.samples.get(HISTORY)),
        kinds=look.kinds,
        groups=groups,
        groups_searched_to=groups.searched_to,
        workers=look.workers,
        pauses=look.pauses,
        redaction=redaction,
        waiting=[head.lane for head in look.sweep.heads],
    )


class _Look(Struct, frozen=True, kw_only=True):
    sweep: Sweep
    samples: Mapping[str, Json]
    kinds: Mapping[str, Json]
    workers: list[WorkerRecord]
    pauses: Pauses

    @classmethod
    async def at(cls, store: StoreQueries, kinds: Mapping[str, Json]) -> _Look:
        return cls(
            samples=await store.records(PREFIX),
            kinds=kinds,
            workers=await store.workers(),
            pauses=Pauses.of(await store.records(PAUSES)),
            # Last, so that nothing above is later than this.
            sweep=await store.sweep(fresh=False),
        )

    @property
    def now(self) -> datetime:
        return self.sweep.now

    def sampled(self) -> Sample | None:
        """Return the latest sample of a worker, unless it is too old.

        A sample from the future was taken before the store's clock was set back.
        """
        known = read_sample(self.samples.get(CLUSTER))
        if known is None or not 0 <= self.now.timestamp() - known.at <= _STALE.total_seconds():
            return None
        return known

    async def counted(self, store: StoreQueries, recorded: Sample | None, trend: Trend) -> Sample:
        """Count jobs now, with the rates of a recent sample if there is one.

        Where counting takes too long, the counts of the sample are returned instead, with their
        age.
        """
        try:
            depths = await store.depths(live_walk(recorded))
        except StoreError:
            if recorded is None:
                raise
            return recorded
        live = counted(await self._facts(store, depths))
        trend.note(live, recorded)
        return live if recorded is None else with_rates(live, recorded)

    async def _facts(self, store: StoreQueries, depths: Depths) -> SampleInputs:
        return SampleInputs(
            now=self.now,
            depths=depths,
            heads=self.sweep.heads,
            workers=self.workers,
            pauses=self.pauses,
            stats=self.kinds,
            breakers=await store.records(BREAKERS),
        )
