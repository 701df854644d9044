"""Owns which worker samples the cluster, and when: one at a time, at most every 15 seconds."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial

import msgspec
from msgspec.structs import replace

from windlass.core.changes import Changes
from windlass.core.jobs.states import State
from windlass.core.policies.breaker_record import RECORD as BREAKERS
from windlass.core.policies.limit import RECORD as LIMITS
from windlass.core.policies.pauses import PAUSES, Pauses
from windlass.core.policies.slo import TARGETS
from windlass.core.records import Json
from windlass.core.schedules.schedule import BATCH, UNSERVED
from windlass.core.schedules.schedule import RECORD as SCHEDULES
from windlass.core.stats import kind_history as kind_stats
from windlass.core.stats.cluster_sample import (
    CLUSTER,
    EVERY,
    TURN,
    Sample,
    SampleInputs,
    is_rated,
    read_sample,
    sampled,
    walk_of_turn,
)
from windlass.core.stats.depths import Depths
from windlass.core.stats.sample_history import HISTORY, continued
from windlass.observability.logs import get_logger
from windlass.process.service import Service
from windlass.store import Store
from windlass.worker.services.kind_stats_recorder import KindStatsRecorder
from windlass.worker.state import WorkerState

log = get_logger("windlass.sampler")
_POLL_SECONDS = 5.0
_POLL_JITTER = 0.2
"""The share by which a poll comes sooner or later, so that workers do not poll together."""
_DUE_SOON_SECONDS = EVERY.total_seconds() - _POLL_SECONDS * (1 + _POLL_JITTER)
"""Age of a sample, in seconds, from which the next one may be due before the next poll."""
_MAX_RINGING = 100
_LATE_AFTER = timedelta(seconds=5)
_SPAN_DIVISORS = (1, 8, 64)
"""The time since the last sample is divided by these in turn, until its arrivals can be counted."""


class ClusterSampler(Service):
    """Reads the cluster-wide figures for this worker, and samples them if no other worker has."""

    name = "cluster_sampler"

    def __init__(
        self,
        store: Store,
        *,
        state: WorkerState,
        recorder: KindStatsRecorder | None = None,
    ) -> None:
        super().__init__()
        self._store = store
        self._state = state
        self._recorder = recorder

    async def tick(self) -> float:
        found = await self._store.records(CLUSTER)
        # The queues of the claimer, whose last sweep a store may know: only the time is needed.
        now = (await self._store.sweep(fresh=False, queues=self._state.policies.queues)).now
        known = read_sample(found.get(CLUSTER))
        age = None if known is None else now.timestamp() - known.at
        if age is not None:
            self._state.sampled(found[CLUSTER], age)
        # Rates are counts divided by the time between two samples: if counts were recorded at other
        # moments, one sample would have none of them and the next one twice as many.
        if self._recorder is not None and (age is None or age >= _DUE_SOON_SECONDS):
            await self._recorder.record_ahead()
        # A sample from the future was made before the store's clock was set back.
        if age is None or not 0 <= age < EVERY.total_seconds():
            await self._take_turn(known)
        # Spread, so that workers do not poll together and each finds a recent sample.
        return _POLL_SECONDS * random.uniform(1 - _POLL_JITTER, 1 + _POLL_JITTER)  # noqa: S311 - spreads load.

    async def _take_turn(self, known: Sample | None) -> None:
        by = self._state.id
        if not by:
            return
        turn = await self._store.apply([TURN], partial(_turn, by, known))
        if turn.answer is not None:
            await self._sample(known, by, turn.answer)

    async def _sample(self, before: Sample | None, by: str, walk: int) -> None:
        """Sample the cluster and store the sample; the time that the store took is part of it."""
        began = time.perf_counter()
        facts = await self._ask(walk, before)
        seconds = time.perf_counter() - began
        # In a thread: with hundreds of kinds this would block the event loop for too long.
        made = await asyncio.to_thread(sampled, facts, before, by=by)
        made = replace(made, seconds=round(seconds, 4), walk=walk)
        record: Json = msgspec.to_builtins(made)
        await self._store.apply([CLUSTER, HISTORY, TURN], partial(_kept, made, record))
        self._state.sampled(record, time.perf_counter() - began)
        await self._forget(facts)

    async def _ask(self, walk: int, before: Sample | None) -> SampleInputs:
        store = self._store
        # Fresh: the claimer of this worker looks only at the queues that it serves.
        sweep = await store.sweep()
        ringing = await store.ringing(_MAX_RINGING)
        depths = await store.depths(walk)
        return SampleInputs(
            now=sweep.now,
            depths=depths,
            disk=await store.disk(),
            findings=self._state.store_findings,
            arrivals=await self._arrivals(depths, before, sweep.now, walk),
            heads=sweep.heads,
            workers=await store.workers(),
            pauses=Pauses.of(await store.records(PAUSES)),
            stats=await store.records(kind_stats.RECORD),
            breakers=await store.records(BREAKERS),
            limits=await store.records(LIMITS),
            targets=await store.records(TARGETS),
            ringing={
                name: record
                for name, record in ringing.records.items()
                if name.startswith(SCHEDULES)
            }
            | await self._unserved(),
        )

    async def _arrivals(
        self, depths: Depths, before: Sample | None, now: datetime, walk: int
    ) -> Mapping[str, int] | None:
        """Count the jobs that arrived since the last sample, where depths cannot say it.

        A little later, since a transaction may commit its enqueues with a delay. Where too many
        jobs arrived to count them, a part of the time is extrapolated.
        """
        if (
            before is None
            or not is_rated(before, now)
            or not any(each.capped and each.state is not State.DEAD for each in depths.counts)
        ):
            return None
        until, span = now - _LATE_AFTER, now - datetime.fromtimestamp(before.at, now.tzinfo)
        for part in _SPAN_DIVISORS:
            try:
                found = await self._store.arrivals(until - span / part, until, walk)
            except Exception as error:  # noqa: BLE001 - what was counted is worth more than a rate.
                log.warning(
                    "sampler.arrivals_unknown", error=f"{type(error).__qualname__}: {error}"
                )
                return None
            if found is not None:
                return {name: count * part for name, count in found.items()}
        return None

    async def _unserved(self) -> dict[str, Json]:
        """Return the schedules that no worker has served for longest; healthy ones ring only
        briefly.
        """
        marks = await self._store.records(UNSERVED)
        names = sorted(marks, key=lambda name: str(marks[name].get("next")))
        for begin in range(0, len(names), BATCH):
            some = [name.removeprefix(UNSERVED) for name in names[begin : begin + BATCH]]
            locked = sorted(prefix + name for name in some for prefix in (SCHEDULES, UNSERVED))
            if late := (await self._store.apply(locked, _still_unserved)).answer:
                return late
        return {}

    async def _forget(self, facts: SampleInputs) -> None:
        """Delete the records of kinds that have not been seen for a long time."""
        now = facts.now
        old = [name for name, record in facts.stats.items() if kind_stats.is_forgotten(record, now)]
        if old:
            await self._store.apply(old, _forgetting)


def _turn(
    by: str, known: Sample | None, found: Mapping[str, Json], now: datetime
) -> Changes[int | None]:
    """Take the turn unless another worker has just taken it; return how many jobs to read.

    A turn that failed expires, too, and is remembered with the number of jobs it tried.
    """
    last = found.get(TURN, {}).get("at", 0.0)
    if 0 <= now.timestamp() - last < EVERY.total_seconds():
        return Changes(answer=None)
    walk = walk_of_turn(known, found.get(TURN))
    return Changes(answer=walk, records={TURN: {"at": now.timestamp(), "by": by, "walk": walk}})


def _kept(made: Sample, record: Json, found: Mapping[str, Json], now: datetime) -> Changes[None]:
    """Store a sample, unless a later one was stored while this one was made."""
    known = read_sample(found.get(CLUSTER))
    if known is not None and made.at < known.at <= now.timestamp():
        return Changes(answer=None)
    history = continued(found.get(HISTORY), made)
    turn = {name: value for name, value in found.get(TURN, {}).items() if name != "walk"}
    return Changes(answer=None, records={CLUSTER: record, HISTORY: history, TURN: turn})


def _still_unserved(found: Mapping[str, Json], _: datetime) -> Changes[dict[str, Json]]:
    """Return the schedules that no worker serves, and delete the marks of the others."""
    late = {
        name: record
        for name, record in found.items()
        if name.startswith(SCHEDULES) and record.get("unserved")
    }
    marks = (name for name in found if name.startswith(UNSERVED))
    old = [name for name in marks if SCHEDULES + name.removeprefix(UNSERVED) not in late]
    return Changes(answer=late, records=dict.fromkeys(old))


def _forgetting(found: Mapping[str, Json], now: datetime) -> Changes[None]:
    gone = [name for name, record in found.items() if kind_stats.is_forgotten(record, now)]
    return Changes(answer=None, records=dict.fromkeys(gone))
