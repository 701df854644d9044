"""Owns the ticking of schedules in a worker. There is no leader: the record's lock decides whose
look it is that makes the job of a tick, and the store's clock when.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from windlass.core.changes import Changes
from windlass.core.errors import ConfigError
from windlass.core.job import OVERLAP, SCHEDULE, TICK, Job, Json, Ringing
from windlass.core.schedule import (
    ASTRAY,
    BATCH,
    GRACE,
    RECORD,
    UNSERVED,
    Look,
    Rung,
    Schedule,
    ScheduleRecord,
    mark_of,
    owed,
    put,
    put_off,
    put_off_unread,
    read_record,
    record_of,
    righted,
    ring,
)
from windlass.core.states import FINISHED
from windlass.observe.logs import get_logger
from windlass.runtime.clocks import ClockGauge
from windlass.runtime.service import Service
from windlass.runtime.tick_spans import TickSpans
from windlass.runtime.waits import first
from windlass.settings import Traces
from windlass.store import Store

log = get_logger("windlass.schedules")
_SHOWN = 2 * BATCH
"""How many of those that ring are looked at, so that not all workers take the same ones."""
_FURTHEST, _FURTHER = 20_000, 4
"""How many are looked at, at most, while most of those that ring are not for us."""
_MOST = 1_000
"""How many jobs one change makes, and how many schedules one look puts off."""
_LONGEST = 1.0
"""Seconds after which a schedule is found that somebody else has put there."""
_UNREAD = "its record cannot be read; was it made by a later release?"
_STAGGER = 0.03
"""Seconds by which workers come one after the other, so that most find the work done."""


@dataclass(kw_only=True)
class _Round:
    """What becomes of some schedules, and which of them nobody here understands, and why."""

    rung: dict[str, Rung] = field(default_factory=dict)
    unread: dict[str, Json] = field(default_factory=dict)
    """The records to be written of those that cannot be read here."""
    broken: dict[str, str] = field(default_factory=dict)
    found: Mapping[str, Json]
    now: datetime

    def changes(self) -> Changes[_Round]:
        """Return what is to be written; what cannot be read is looked at again after a while."""
        alarms = {name: each.record.alarm for name, each in self.rung.items()}
        alarms |= dict.fromkeys(self.unread, self.now + GRACE)
        records = {name: record_of(each.record) for name, each in self.rung.items()} | self.unread
        marks = {
            UNSERVED + name: mark_of(record, self.broken.get(name))
            for name, record in records.items()
            if record.get("unserved")
        }
        return Changes(
            answer=self,
            records={RECORD + name: record for name, record in records.items()} | marks,
            alarms={RECORD + name: alarm for name, alarm in alarms.items()},
            enqueue=[job for each in self.rung.values() for job in each.jobs],
        )


_Decide = Callable[[Mapping[str, ScheduleRecord | None], _Round], None]


class Ticker(Service):
    """Makes the jobs of schedules that are due, of those that this worker may tick.

    Those are the ones whose kind it knows; and of the schedules that are part of somebody's code,
    the ones that its own code `declared`. `ids` makes the ids of new jobs. `others` say, by the
    prefix of their names, what is to be done about other records whose alarms go off. `clock` is
    shown what time the store says it is, since nobody else here asks so often.
    """

    name = "ticker"

    def __init__(
        self,
        store: Store,
        *,
        kinds: Container[str],
        declared: Mapping[str, Schedule],
        ids: Callable[[], UUID],
        others: Mapping[str, Callable[[Sequence[str]], Awaitable[None]]] | None = None,
        clock: ClockGauge | None = None,
        traces: Traces = "off",
    ) -> None:
        super().__init__()
        self._store = store
        self._kinds = kinds
        self._declared = declared
        self._ids = ids
        self._others = others or {}
        self._clock = clock or ClockGauge()
        self._traces = traces
        self._undeclared = sorted(declared)
        self._ended: dict[str, UUID] = {}
        self._roused = asyncio.Event()
        self._told: set[str] = set()
        self._broken: dict[str, tuple[Schedule, str]] = {}
        """What cannot be reckoned here, and why: left to others until evidently none can."""
        self._seen: datetime | None = None
        self._check_at: datetime | None = None
        self.has_looked = False
        """Whether what was due at the start is enqueued."""

    def ended(self, job: Job) -> None:
        """Take notice of the end of a job: the next tick of its schedule may wait for that."""
        if OVERLAP in job.headers:
            self._ended[job.headers[SCHEDULE]] = job.id
            self._roused.set()

    async def pause(self, seconds: float) -> None:
        """Wait, but no longer than until there is something to do."""
        if seconds <= 0:
            await asyncio.sleep(0)
        else:
            await first(self._stopping.wait(), self._roused.wait(), patience=seconds)

    async def tick(self) -> float:
        self._roused.clear()
        await self._declare()
        await self._mind_ended()
        ringing, known, ours = await self._look()
        done = await self._ring(_some(ours), ringing.now)
        moved = await self._put_off(known.keys() - ours.keys(), known, ringing)
        await self._mind_others(ringing)
        await self._mind_clock(ringing.now)
        if (done and len(ours) > BATCH) or (moved and len(ringing.records) >= _SHOWN):
            return 0  # There may be more.
        self.has_looked = True
        return _time_left(ringing, done)

    async def _look(
        self,
    ) -> tuple[Ringing, Mapping[str, ScheduleRecord | None], Mapping[str, ScheduleRecord]]:
        """Return what rings, the schedules among that, and ours of those.

        What is not for us may ring first, and be much: then it looks further.
        """
        shown = _SHOWN
        while True:
            asked = self._clock.host_time()
            ringing = await self._store.ringing(shown)
            self._clock.compare(asked, ringing.now)
            known = {
                name.removeprefix(RECORD): read_record(record)
                for name, record in ringing.records.items()
                if name.startswith(RECORD)
            }
            ours = {name: it for name, it in known.items() if it and self._is_ours(name, it)}
            others = sum(name.startswith(tuple(self._others)) for name in ringing.records)
            is_all = len(ringing.records) < shown or shown == _FURTHEST
            if is_all or len(ours) + others >= BATCH:
                return ringing, known, ours
            shown = min(shown * _FURTHER, _FURTHEST)

    def _is_ours(self, name: str, known: ScheduleRecord) -> bool:
        if known.schedule.job.kind not in self._kinds or self._why_broken(name, known):
            return False
        return not known.schedule.declared or name in self._declared

    def _why_broken(self, name: str, known: ScheduleRecord) -> str:
        schedule, why = self._broken.get(name, (None, ""))
        return why if schedule == known.schedule else ""

    async def _apply(self, names: Collection[str], decide: _Decide) -> _Round:
        """Let something be decided under the lock of some schedules."""

        def reduce(known: Mapping[str, Json], now: datetime) -> Changes[_Round]:
            made = _Round(found=known, now=now)
            decide({name: read_record(known.get(RECORD + name)) for name in names}, made)
            return made.changes()

        # In order, so that two who lock the same ones cannot wait for each other.
        return (await self._store.apply([RECORD + name for name in sorted(names)], reduce)).answer

    # -- what our code declares ----------------------------------------------------------------

    async def _declare(self) -> None:
        """Write the schedules of our code, once; those that are as they were stay as they are."""

        def decide(known: Mapping[str, ScheduleRecord | None], made: _Round) -> None:
            for name, before in known.items():
                after = put(name, before, self._declared[name], made.now)
                if after != before:
                    made.rung[name] = Rung(record=after)

        while names := self._undeclared[:BATCH]:
            await self._apply(names, decide)
            del self._undeclared[: len(names)]

    # -- what is due ---------------------------------------------------------------------------

    async def _mind_ended(self) -> None:
        """Look at schedules whose last job has ended here: a tick may have waited for that."""
        while names := list(self._ended)[:BATCH]:
            over = {self._ended.pop(name): False for name in names}
            await self._decide(names, over, len(names))

    async def _ring(
        self, schedules: Mapping[str, ScheduleRecord], now: datetime
    ) -> Mapping[str, Rung]:
        """Tick some schedules, and return what they did."""
        wary = (each for each in schedules.values() if each.schedule.overlap != "allow")
        last = [each.last_job for each in wary if each.last_job is not None]
        jobs = await self._store.get_many(last) if last else {}
        running = {job: job in jobs and jobs[job].state not in FINISHED for job in last}
        wanted = 0
        for name, each in schedules.items():
            with suppress(ConfigError):  # It is found to be broken in a moment.
                wanted += len(owed(name, each, now))
        return await self._decide(schedules, running, wanted)

    async def _decide(
        self, names: Collection[str], running: Mapping[UUID, bool], wanted: int
    ) -> Mapping[str, Rung]:
        if not names:
            return {}
        ids = [self._ids() for _ in range(min(wanted, _MOST))]

        spans = TickSpans(self._traces)

        def decide(known: Mapping[str, ScheduleRecord | None], made: _Round) -> None:
            spans.begin()
            left, look = list(ids), Look(now=made.now, running=running)
            for name, each in known.items():
                if each is None or not self._is_ours(name, each):
                    continue
                try:
                    if rung := ring(name, each, look, left):
                        made.rung[name] = spans.around(rung)
                except ConfigError as error:
                    # Its alarm stays as it is: another host may be able to.
                    made.broken[name] = str(error)
                    self._broken[name] = each.schedule, str(error)

        done = await self._apply(names, decide)
        spans.end()
        for name, rung in done.rung.items():
            _tell(name, rung)
        for name, why in done.broken.items():
            self._tell_broken(name, why)
        return done.rung

    async def _mind_clock(self, now: datetime) -> None:
        """Set right what a clock that was wrong has put far away, where it would never ring.

        That is looked for when the clock has gone back, soon after the start, and every hour.
        """
        is_back = self._seen is not None and now + GRACE < self._seen
        self._seen = now
        self._check_at = self._check_at or now + GRACE
        if now < self._check_at and not is_back:
            return
        self._check_at = now + ASTRAY
        found = await self._store.records(RECORD)
        known = {name.removeprefix(RECORD): read_record(record) for name, record in found.items()}
        wrong = [name for name, each in known.items() if self._righted(name, each, now)]

        def decide(known: Mapping[str, ScheduleRecord | None], made: _Round) -> None:
            for name, each in known.items():
                if right := self._righted(name, each, made.now):
                    made.rung[name] = Rung(record=right)

        for begin in range(0, len(wrong), BATCH):
            await self._apply(wrong[begin : begin + BATCH], decide)

    def _righted(
        self, name: str, known: ScheduleRecord | None, now: datetime
    ) -> ScheduleRecord | None:
        if known is not None and self._is_ours(name, known):
            with suppress(ConfigError):  # It is found to be broken when it rings.
                return righted(name, known, now)
        return None

    async def _mind_others(self, ringing: Ringing) -> None:
        for prefix, mind in self._others.items():
            if names := [name for name in ringing.records if name.startswith(prefix)]:
                await mind(names[:_SHOWN])

    # -- what is not for us --------------------------------------------------------------------

    async def _put_off(
        self, names: Collection[str], shown: Mapping[str, ScheduleRecord | None], ringing: Ringing
    ) -> bool:
        """Put off what evidently nobody minds, so that it does not stand in the way of others."""
        found = ringing.records
        stale = [
            name for name in names if _is_stale(shown[name], found[RECORD + name], ringing.now)
        ]
        if not stale:
            return False
        for begin in range(0, min(len(stale), _MOST), BATCH):
            done = await self._apply(stale[begin : begin + BATCH], self._leave)
            for name, why in done.broken.items():
                self._broken.pop(name, None)  # It is tried again when it rings again.
                self._tell_broken(name, why)
        return True

    def _leave(self, known: Mapping[str, ScheduleRecord | None], made: _Round) -> None:
        for name, each in known.items():
            if each is not None:
                if after := put_off(each, made.now):
                    made.rung[name] = Rung(record=after)
                    if why := self._why_broken(name, each):
                        made.broken[name] = why
            elif left := put_off_unread(made.found.get(RECORD + name), made.now):
                made.unread[name] = left
                made.broken[name] = _UNREAD

    def _tell_broken(self, name: str, why: str) -> None:
        if name not in self._told:
            self._told.add(name)
            log.error("schedule.broken", schedule=name, why=why)


def _is_stale(known: ScheduleRecord | None, record: Json, now: datetime) -> bool:
    return bool(put_off_unread(record, now) if known is None else put_off(known, now))


def _some(schedules: Mapping[str, ScheduleRecord]) -> Mapping[str, ScheduleRecord]:
    """Choose as many as are ticked at once; other workers will choose others."""
    if len(schedules) <= BATCH:
        return schedules
    return {name: schedules[name] for name in random.sample(sorted(schedules), BATCH)}


def _time_left(ringing: Ringing, done: Mapping[str, Rung]) -> float:
    """Return how long nothing will ring, as far as anybody knows."""
    alarms = [ringing.next, *(each.record.alarm for each in done.values())]
    left = [(alarm - ringing.now).total_seconds() for alarm in alarms if alarm is not None]
    # What rings already is somebody else's affair, and no reason to look at it all the time.
    soonest = min((each for each in left if each > 0), default=_LONGEST)
    return min(soonest, _LONGEST) + random.uniform(0, _STAGGER)  # noqa: S311 - spreads load.


def _tell(name: str, rung: Rung) -> None:
    for job in rung.jobs:
        told = {"schedule": name, "kind": job.kind, "job_id": str(job.id)}
        log.debug("schedule.ticked", **told, tick=job.headers[TICK])
    if rung.overlapped:
        log.warning(
            "schedule.skipped",
            schedule=name,
            tick=rung.overlapped[-1].isoformat(),
            why=f"the job of the tick before, {rung.record.last_job}, is not finished",
        )
    if rung.late:
        log.warning(
            "schedule.missed",
            schedule=name,
            ticks=rung.late,
            why="no worker was there in time",
            catch_up=rung.record.schedule.catch_up,
        )
