"""Owns how a worker adds what it has counted to the store's own record: see `core.kind_stats`."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial

from windlass.core import latency
from windlass.core.changes import Changes
from windlass.core.families import EVENTS
from windlass.core.job import Json
from windlass.core.kind_stats import RECORD, Window, recorded
from windlass.core.metrics import OTHER
from windlass.observe.meters import Tallies
from windlass.runtime.service import Service
from windlass.store import Store

_EVERY = 15.0
_AT_ONCE = 50
_ENDS = ("completed", "dead", "cancelled")


class Chronicler(Service):
    """Adds to the records of the kinds that this worker has run, every quarter of a minute."""

    name = "chronicler"

    def __init__(self, store: Store, tallies: Callable[[], list[Tallies]]) -> None:
        super().__init__()
        self._store = store
        self._tallies = tallies
        self._told: dict[tuple[str, str], _Told] = {}
        self._begun = False

    async def stop(self) -> None:
        """End, with everything recorded."""
        await super().stop()
        await self._record()

    async def tick(self) -> float:
        if self._begun:
            await self._record()
        self._begun = True
        return _EVERY * random.uniform(0.8, 1.2)  # noqa: S311 - spreads load.

    async def _record(self) -> None:
        """Add what is new, some kinds at a time; what cannot be added now is added later."""
        news = self._news()
        kinds = sorted(news)
        for start in range(0, len(kinds), _AT_ONCE):
            some = {kind: news[kind] for kind in kinds[start : start + _AT_ONCE]}
            names = [RECORD + kind for kind in some]
            await self._store.apply(names, partial(_added, some))
            for kind in some.values():
                self._told |= kind.told
                kind.forget_errors()

    def _news(self) -> dict[str, _News]:
        news: dict[str, _News] = {}
        for each in self._tallies():
            before = self._told.get((each.queue, each.kind)) or _Told.nothing()
            now = _Told(each)
            if now.events != before.events or now.durations != before.durations or each.errors:
                news.setdefault(each.kind, _News()).add(each, before, now)
        return news


class _Told:
    """The counts of a queue and a kind as they were when they were recorded."""

    __slots__ = ("durations", "events", "key", "waits")

    def __init__(self, tallies: Tallies) -> None:
        self.key = (tallies.queue, tallies.kind)
        self.events = dict(zip(EVENTS, tallies.events, strict=True))
        self.durations = list(tallies.durations)
        self.waits = list(tallies.waits)

    @classmethod
    def nothing(cls) -> _Told:
        return cls(Tallies("", ""))


class _News:
    """What is to be added to the record of one kind."""

    def __init__(self) -> None:
        self.window = Window()
        self.left: dict[str, int] = {}
        self.told: dict[tuple[str, str], _Told] = {}
        self.lines: dict[str, str] = {}
        self._errors: list[tuple[Tallies, dict[str, int]]] = []

    def add(self, tallies: Tallies, before: _Told, now: _Told) -> None:
        """Add what has happened between two looks at one queue."""
        errors = {name: each.count for name, each in tallies.errors.items()}
        self._errors.append((tallies, errors))
        self.lines |= {name: each.line for name, each in tallies.errors.items() if name != OTHER}
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
        self.told[now.key] = now

    def forget_errors(self) -> None:
        """Count errors no more that are recorded; those that came meanwhile stay for next time."""
        for tallies, errors in self._errors:
            for name, count in errors.items():
                tallies.errors[name].count -= count
                if not tallies.errors[name].count:
                    del tallies.errors[name]


def _difference(now: list[int], before: list[int]) -> list[int]:
    return latency.sparse(one - other for one, other in zip(now, before, strict=True))


def _added(news: Mapping[str, _News], found: Mapping[str, Json], now: datetime) -> Changes[None]:
    return Changes(
        answer=None,
        records={
            RECORD + kind: recorded(
                found.get(RECORD + kind), each.window, each.left, now, each.lines
            )
            for kind, each in news.items()
        },
    )
