"""Owns who samples the cluster, and when: one worker at a time, at most every 15 seconds."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial

import msgspec
from msgspec.structs import replace

from windlass.core import kind_stats
from windlass.core.breaker_record import RECORD as BREAKERS
from windlass.core.changes import Changes
from windlass.core.job import Depths, Json
from windlass.core.limits import RECORD as LIMITS
from windlass.core.pauses import PAUSES, Pauses
from windlass.core.sample import CLUSTER, EVERY, TURN, Facts, Sample, is_rated, read_sample, sampled
from windlass.core.sample_history import HISTORY, continued
from windlass.core.sample_walk import walk_of_turn
from windlass.core.schedule import BATCH, UNSERVED
from windlass.core.schedule import RECORD as SCHEDULES
from windlass.core.states import State
from windlass.core.targets import TARGETS
from windlass.observe.logs import get_logger
from windlass.runtime.service import Service
from windlass.store import Store

log = get_logger("windlass.sampler")
_LOOK = 5.0
_RINGING = 100
_LATE = timedelta(seconds=5)
_PARTS = (1, 8, 64)


class Sampler(Service):
    """Reads the cluster-wide figures for this worker, and makes them when nobody else has."""

    name = "sampler"

    def __init__(
        self,
        store: Store,
        *,
        worker_id: Callable[[], str],
        sampled: Callable[[Json, float], None],
    ) -> None:
        super().__init__()
        self._store = store
        self._worker_id = worker_id
        self._sampled = sampled

    async def tick(self) -> float:
        found = await self._store.records(CLUSTER)
        now = (await self._store.sweep(fresh=False)).now
        known = read_sample(found.get(CLUSTER))
        age = None if known is None else now.timestamp() - known.at
        if age is not None:
            self._sampled(found[CLUSTER], age)
        # One from the future was made before the store's clock was set back.
        if age is None or not 0 <= age < EVERY.total_seconds():
            await self._take_turn(known)
        # Not all at once, and so that each has a sample that is at most a little older than it is.
        return _LOOK * random.uniform(0.8, 1.2)  # noqa: S311 - spreads load.

    async def _take_turn(self, known: Sample | None) -> None:
        by = self._worker_id()
        if not by:
            return
        turn = await self._store.apply([TURN], partial(_turn, by, known))
        if turn.answer is not None:
            await self._sample(known, by, turn.answer)

    async def _sample(self, before: Sample | None, by: str, walk: int) -> None:
        """Make the figures, and keep them for all; how long the store takes is one of them."""
        began = time.perf_counter()
        facts = await self._ask(walk, before)
        seconds = time.perf_counter() - began
        # In a thread: with hundreds of kinds it takes as long as the loop must not stand still.
        made = await asyncio.to_thread(sampled, facts, before, by=by)
        made = replace(made, seconds=round(seconds, 4), walk=walk)
        record: Json = msgspec.to_builtins(made)
        await self._store.apply([CLUSTER, HISTORY, TURN], partial(_kept, made, record))
        self._sampled(record, time.perf_counter() - began)
        await self._forget(facts)

    async def _ask(self, walk: int, before: Sample | None) -> Facts:
        store = self._store
        sweep = await store.sweep(fresh=False)
        ringing = await store.ringing(_RINGING)
        depths = await store.depths(walk)
        return Facts(
            now=sweep.now,
            depths=depths,
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
        """Ask how many jobs have come since the last sample, where that cannot be told by depths.

        A little later, since a transaction may commit only after a moment what it has enqueued.
        Where too many have come to count them, those of a part of the time stand for all.
        """
        if (
            before is None
            or not is_rated(before, now)
            or not any(each.capped and each.state is not State.DEAD for each in depths.counts)
        ):
            return None
        until, span = now - _LATE, now - datetime.fromtimestamp(before.at, now.tzinfo)
        for part in _PARTS:
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
        """Return the schedules that nobody has served for longest; they ring for a moment only."""
        marks = await self._store.records(UNSERVED)
        names = sorted(marks, key=lambda name: str(marks[name].get("next")))
        for begin in range(0, len(names), BATCH):
            some = [name.removeprefix(UNSERVED) for name in names[begin : begin + BATCH]]
            locked = sorted(prefix + name for name in some for prefix in (SCHEDULES, UNSERVED))
            if late := (await self._store.apply(locked, _still_unserved)).answer:
                return late
        return {}

    async def _forget(self, facts: Facts) -> None:
        """Delete the records of kinds of which nothing was heard for long."""
        now = facts.now
        old = [name for name, record in facts.stats.items() if kind_stats.is_forgotten(record, now)]
        if old:
            await self._store.apply(old, _forgetting)


def _turn(
    by: str, known: Sample | None, found: Mapping[str, Json], now: datetime
) -> Changes[int | None]:
    """Take the turn, unless somebody has just taken it, and tell how many jobs to look at.

    One that came to nothing passes, too, and is kept in mind with what it tried.
    """
    last = found.get(TURN, {}).get("at", 0.0)
    if 0 <= now.timestamp() - last < EVERY.total_seconds():
        return Changes(answer=None)
    walk = walk_of_turn(known, found.get(TURN))
    return Changes(answer=walk, records={TURN: {"at": now.timestamp(), "by": by, "walk": walk}})


def _kept(made: Sample, record: Json, found: Mapping[str, Json], now: datetime) -> Changes[None]:
    """Keep a sample, unless somebody has kept a later one while this one was made."""
    known = read_sample(found.get(CLUSTER))
    if known is not None and made.at < known.at <= now.timestamp():
        return Changes(answer=None)
    history = continued(found.get(HISTORY), made)
    turn = {name: told for name, told in found.get(TURN, {}).items() if name != "walk"}
    return Changes(answer=None, records={CLUSTER: record, HISTORY: history, TURN: turn})


def _still_unserved(found: Mapping[str, Json], _: datetime) -> Changes[dict[str, Json]]:
    """Tell which schedules nobody serves, and forget the marks of those that somebody does."""
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
