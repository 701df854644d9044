"""Owns how `app.stats` gathers what workers recorded; `core.stats` makes figures of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from windlass.core import kind_stats
from windlass.core.breaker_record import RECORD as BREAKERS
from windlass.core.job import Json, Sweep, WorkerRecord
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


async def gather_stats(
    store: Store, redaction: Redaction, *, queue: str | None = None, kind: str | None = None
) -> Stats:
    """Return the figures of a store, of all there is, or of a queue, or of a kind."""
    look = await _Look.at(store)
    sample = look.sampled()
    facts = StatsFacts(
        now=look.now,
        sample=sample or await look.counted(store),
        counted=sample is None,
        history=read_history(look.samples.get(HISTORY)),
        kinds=look.kinds,
        groups=await store.error_groups(kind=kind, limit=_GROUPS),
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
    async def at(cls, store: Store) -> _Look:
        return cls(
            samples=await store.records(PREFIX),
            kinds=await store.records(kind_stats.RECORD),
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
