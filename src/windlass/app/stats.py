"""Owns how `app.stats` gathers what workers recorded; `core.stats` makes figures of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from windlass.core import kind_stats
from windlass.core.breaker_record import RECORD as BREAKERS
from windlass.core.job import ErrorGroup, Json, Sweep, WorkerRecord
from windlass.core.pauses import PAUSES, Pauses
from windlass.core.redaction import Redaction
from windlass.core.sample import CLUSTER, PREFIX, Facts, Sample, read_sample, sampled
from windlass.core.sample_history import HISTORY, read_history
from windlass.core.sample_walk import walk_after
from windlass.core.stats import Stats, StatsFacts, stats_of
from windlass.store import Store

_STALE = timedelta(minutes=1)
"""After which no worker samples any more, and whoever asks counts by itself."""
_GROUPS = 1_000
_SLOWLY = timedelta(seconds=15)


class Slow:
    """What takes long to read and changes slowly: read no more often than workers record it.

    For whoever looks time and again; `forget` makes the next look read it anew.
    """

    def __init__(self, store: Store, kind: str | None = None) -> None:
        self._store = store
        self._kind = kind
        self.forget()

    def forget(self) -> None:
        """Read all of it anew at the next look."""
        self._next = 0.0
        self._round = object()

    async def read(self) -> tuple[Mapping[str, Json], list[ErrorGroup]]:
        """Return what is recorded of kinds, and of what jobs are dead."""
        if time.monotonic() >= self._next:
            round_ = self._round
            kinds = await self._store.records(kind_stats.RECORD)
            groups = await self._store.error_groups(kind=self._kind, limit=_GROUPS)
            self._known = kinds, groups
            # What was changed while it was read may not be in it.
            if round_ is self._round:
                self._next = time.monotonic() + _SLOWLY.total_seconds()
        return self._known


async def gather_stats(
    store: Store,
    redaction: Redaction,
    *,
    queue: str | None = None,
    kind: str | None = None,
    slow: Slow | None = None,
) -> Stats:
    """Return the figures of a store, of all there is, or of a queue, or of a kind."""
    kinds, groups = await (slow or Slow(store, kind)).read()
    look = await _Look.at(store, kinds)
    sample = look.sampled()
    facts = StatsFacts(
        now=look.now,
        sample=sample or await look.counted(store),
        counted=sample is None,
        history=read_history(look.samples.get(HISTORY)),
        kinds=look.kinds,
        groups=groups,
        workers=look.workers,
        pauses=look.pauses,
        redaction=redaction,
    )
    return stats_of(facts, queue=queue, kind=kind)


@dataclass(frozen=True, kw_only=True)
class _Look:
    """What is read in any case, none of which takes long."""

    sweep: Sweep
    samples: Mapping[str, Json]
    kinds: Mapping[str, Json]
    workers: list[WorkerRecord]
    pauses: Pauses

    @classmethod
    async def at(cls, store: Store, kinds: Mapping[str, Json]) -> _Look:
        return cls(
            samples=await store.records(PREFIX),
            kinds=kinds,
            workers=await store.workers(),
            pauses=Pauses.of(await store.records(PAUSES)),
            # Last, so that nothing of the above is from the future.
            sweep=await store.sweep(fresh=False),
        )

    @property
    def now(self) -> datetime:
        return self.sweep.now

    def sampled(self) -> Sample | None:
        """Return what a worker sampled, unless that was too long ago.

        One from the future was made before the store's clock was set back.
        """
        known = read_sample(self.samples.get(CLUSTER))
        if known is None or not 0 <= self.now.timestamp() - known.at <= _STALE.total_seconds():
            return None
        return known

    async def counted(self, store: Store) -> Sample:
        """Count, since no worker does; without one before, there are no rates."""
        facts = Facts(
            now=self.now,
            depths=await store.depths(walk_after(None)),
            heads=self.sweep.heads,
            workers=self.workers,
            pauses=self.pauses,
            stats=self.kinds,
            breakers=await store.records(BREAKERS),
        )
        return sampled(facts, None, by="")
