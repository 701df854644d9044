"""Owns the recording of a worker's counts in the store: see `core.stats.kind_stats`."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from datetime import datetime
from functools import partial

from windlass.core.changes import Changes
from windlass.core.metrics import histogram as latency
from windlass.core.metrics.exposition import OTHER
from windlass.core.metrics.families import EVENTS
from windlass.core.records import Json
from windlass.core.stats.kind_history import RECORD, NewError, Window, recorded
from windlass.observability.meters import Errors, Meters, Tallies
from windlass.process.service import Service
from windlass.store import Store

_RECORD_SECONDS = 15.0
_KINDS_PER_WRITE = 50
_ENDS = ("completed", "dead", "cancelled")


class KindStatsRecorder(Service):
    """Adds to the records of the kinds that this worker has run, every 15 seconds."""

    name = "kind_stats_recorder"

    def __init__(self, store: Store, meters: Meters) -> None:
        super().__init__()
        self._store = store
        self._meters = meters
        self._recorded: dict[tuple[str, str], _Recorded] = {}
        self._begun = False
        self._ahead = False
        self._recording = asyncio.Lock()

    async def stop(self) -> None:
        """Stop, with everything recorded."""
        await super().stop()
        await self.record()

    async def tick(self) -> float:
        if self._begun and not self._ahead:
            await self.record()
        self._begun, self._ahead = True, False
        return _RECORD_SECONDS * random.uniform(0.8, 1.2)  # noqa: S311 - spreads load.

    async def record_ahead(self) -> None:
        """Record now instead of at the next tick, because a sample is about to be made."""
        await self.record()
        self._ahead = True

    async def record(self) -> None:
        """Record the counts since the last time."""
        # One at a time: two would both read the same counts, and add them twice.
        async with self._recording:
            await self._record()

    async def _record(self) -> None:
        """Add the counts of some kinds at a time; a failed addition is repeated later."""
        news = self._news()
        kinds = sorted(news)
        for start in range(0, len(kinds), _KINDS_PER_WRITE):
            some = {kind: news[kind] for kind in kinds[start : start + _KINDS_PER_WRITE]}
            names = [RECORD + kind for kind in some]
            await self._store.apply(names, partial(_added, some))
            for kind in some.values():
                self._recorded |= kind.readings
                kind.forget_errors()

    def _news(self) -> dict[str, _News]:
        news: dict[str, _News] = {}
        for each in self._meters.tallies:
            before = self._recorded.get((each.queue, each.kind)) or _Recorded.nothing()
            now = _Recorded(each)
            if now.events != before.events or now.durations != before.durations or each.errors:
                news.setdefault(each.kind, _News()).add(each, before, now)
        return news


class _Recorded:
    __slots__ = ("durations", "events", "key", "waits")

    def __init__(self, tallies: Tallies) -> None:
        self.key = (tallies.queue, tallies.kind)
        self.events = dict(zip(EVENTS, tallies.events, strict=True))
        self.durations = list(tallies.durations)
        self.waits = list(tallies.waits)

    @classmethod
    def nothing(cls) -> _Recorded:
        return cls(Tallies("", ""))


class _News:
    def __init__(self) -> None:
        self.window = Window()
        self.left: dict[str, int] = {}
        self.readings: dict[tuple[str, str], _Recorded] = {}
        self.seen: dict[str, NewError] = {}
        self._errors: list[tuple[Tallies, dict[str, int]]] = []

    def add(self, tallies: Tallies, before: _Recorded, now: _Recorded) -> None:
        errors = {name: each.count for name, each in tallies.errors.items()}
        self._errors.append((tallies, errors))
        self.seen |= {name: _seen(each) for name, each in tallies.errors.items() if name != OTHER}
        more = {event: now.events[event] - before.events[event] for event in EVENTS}
        self.window += Window(
            completed=more["completed"],
            failed=more["failed"],
            retried=more["retried"],
            dead=more["dead"],
            cancelled=more["cancelled"],
            durations=_difference(now.durations, before.durations),
            waits=_difference(now.waits, before.waits),
            errors=errors,
        )
        gone = sum(more[event] for event in _ENDS)
        self.left[tallies.queue] = self.left.get(tallies.queue, 0) + gone
        self.readings[now.key] = now

    def forget_errors(self) -> None:
        """Drop the errors that are recorded; later ones stay for the next time."""
        for tallies, errors in self._errors:
            for name, count in errors.items():
                tallies.errors[name].count -= count
                if not tallies.errors[name].count:
                    del tallies.errors[name]


def _seen(errors: Errors) -> NewError:
    now = time.monotonic()
    return NewError(line=errors.line, first_ago=now - errors.first, last_ago=now - errors.last)


def _difference(now: list[int], before: list[int]) -> list[int]:
    return latency.sparse(one - other for one, other in zip(now, before, strict=True))


def _added(news: Mapping[str, _News], found: Mapping[str, Json], now: datetime) -> Changes[None]:
    return Changes(
        answer=None,
        records={
            RECORD + kind: recorded(
                found.get(RECORD + kind), each.window, each.left, now, each.seen
            )
            for kind, each in news.items()
        },
    )
