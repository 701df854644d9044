"""Owns the ticking of schedules in a worker. There is no leader: the record's lock decides which
worker makes the job of a tick, and the store's clock decides when.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Container, Mapping
from contextlib import suppress
from datetime import datetime
from uuid import UUID

from msgspec import Struct, field

from windlass.core.changes import Changes
from windlass.core.errors import ConfigError
from windlass.core.jobs.job import OVERLAP, SCHEDULE, TICK, Job
from windlass.core.records import Json, Ringing
from windlass.core.schedules.definition import Schedule
from windlass.core.schedules.schedule import (
    ASTRAY,
    BATCH,
    GRACE,
    RECORD,
    UNSERVED,
    Look,
    Rung,
    ScheduleRecord,
    holds_up,
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
from windlass.observability.logs import get_logger
from windlass.process.clocks import ClockGauge
from windlass.process.service import RousableService
from windlass.settings import Traces
from windlass.store import Store
from windlass.worker.services.outbox_relay import AlarmHandler
from windlass.worker.services.schedules.clock_steps import ClockSteps
from windlass.worker.services.schedules.tick_traces import TickTraces

log = get_logger("windlass.schedules")
_MAX_READ = 2 * BATCH
"""Number of due schedules that are read, so that not all workers choose the same ones."""
_MAX_READ_FURTHER, _READ_FACTOR = 20_000, 4
"""Most records that one look reads, and the factor by which it reads further."""
_MAX_CHANGES = 1_000
"""Number of jobs that one change makes, and of schedules that one look postpones."""
_MAX_PAUSE_SECONDS = 1.0
"""Seconds until a schedule is found that another process has stored."""
_UNREAD = "its record cannot be read; a later release may have written it"
_STAGGER_SECONDS = 0.03
"""Seconds between the looks of two workers, so that most workers find the work done."""


class _Round(Struct, kw_only=True):
    """The decisions about some schedules, and why others cannot be read or computed here."""

    rung: dict[str, Rung] = field(default_factory=dict)
    unread: dict[str, Json] = field(default_factory=dict)
    """The records to write for schedules that cannot be read here."""
    broken: dict[str, str] = field(default_factory=dict)
    found: Mapping[str, Json]
    now: datetime

    def changes(self) -> Changes[_Round]:
        """Return the changes to write; an unreadable schedule is looked at again after a while."""
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


class ScheduleTicker(RousableService):
    """Makes the jobs of schedules that are due and that this worker may tick.

    Those have a kind that the worker knows; and of the schedules that an app's code declares, they
    are the ones that this app `declared`. `ids` makes the ids of new jobs. `others` handle, by the
    prefix of their names, other records whose alarms are due. `clock` is given every time of the
    store, since no other part asks as often.
    """

    name = "schedule_ticker"

    def __init__(
        self,
        store: Store,
        *,
        kinds: Container[str],
        declared: Mapping[str, Schedule],
        ids: Callable[[], UUID],
        others: Mapping[str, AlarmHandler] | None = None,
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
        self._steps: ClockSteps | None = ClockSteps(store)
        self._traces = traces
        self._undeclared = sorted(declared)
        self._only_missing = False
        self._ended: dict[str, UUID] = {}
        self._logged: set[str] = set()
        self._broken: dict[str, tuple[Schedule, str]] = {}
        """Schedules that cannot be computed here, and why; left to other workers at first."""
        self._seen: datetime | None = None
        self._check_at: datetime | None = None
        self.has_looked = False
        """Whether the ticks that were due at the start are enqueued."""

    def ended(self, job: Job) -> None:
        """Record the end of a job: the next tick of its schedule may have waited for it."""
        if OVERLAP in job.headers:
            self._ended[job.headers[SCHEDULE]] = job.id
            self.rouse()

    def declare_again(self) -> None:
        """Write the app's schedules again where they are missing: the store may be a new one."""
        self._undeclared = sorted(self._declared)
        self._only_missing = True
        self.rouse()

    def go_by_hand(self) -> None:
        """Ignore steps of the store's clock: a test makes them."""
        self._steps = None

    async def tick(self) -> float:
        self._roused.clear()
        asked = 0.0 if self._steps is None else self._steps.time()
        await self._declare()
        await self._look_at_ended()
        ringing, known, ours = await self._look()
        if self._steps is not None:
            await self._steps.look(ringing.now, asked)
        done = await self._ring(_choose(ours), ringing.now)
        moved = await self._put_off(known.keys() - ours.keys(), known, ringing)
        await self._handle_others(ringing)
        await self._correct_alarms(ringing.now)
        if (done and len(ours) > BATCH) or (moved and len(ringing.records) >= _MAX_READ):
            return 0  # There may be more.
        self.has_looked = True
        return _time_left(ringing, done)

    async def _look(
        self,
    ) -> tuple[Ringing, Mapping[str, ScheduleRecord | None], Mapping[str, ScheduleRecord]]:
        """Return what is due, the schedules among that, and the ones that this worker may tick.

        Records of others may come first, and be many: then it reads further.
        """
        shown = _MAX_READ
        while True:
            asked = self._clock.host_time()
            ringing = await self._store.ringing(shown)
            self._clock.compare(asked, ringing.now)
            known = {
                name.removeprefix(RECORD): read_record(record)
                for name, record in ringing.records.items()
                if name.startswith(RECORD)
            }
            ours = {name: it for name, it in known.items() if it and self._may_tick(name, it)}
            others = sum(name.startswith(tuple(self._others)) for name in ringing.records)
            is_all = len(ringing.records) < shown or shown == _MAX_READ_FURTHER
            if is_all or len(ours) + others >= BATCH:
                return ringing, known, ours
            shown = min(shown * _READ_FACTOR, _MAX_READ_FURTHER)

    def _may_tick(self, name: str, known: ScheduleRecord) -> bool:
        if known.schedule.job.kind not in self._kinds or self._why_broken(name, known):
            return False
        return not known.schedule.declared or name in self._declared

    def _why_broken(self, name: str, known: ScheduleRecord) -> str:
        schedule, why = self._broken.get(name, (None, ""))
        return why if schedule == known.schedule else ""

    async def _apply(self, names: Collection[str], decide: _Decide) -> _Round:
        def reduce(known: Mapping[str, Json], now: datetime) -> Changes[_Round]:
            made = _Round(found=known, now=now)
            decide({name: read_record(known.get(RECORD + name)) for name in names}, made)
            return made.changes()

        # In order, so that two workers that lock the same records cannot deadlock.
        return (await self._store.apply([RECORD + name for name in sorted(names)], reduce)).answer

    # -- schedules that the app declares -------------------------------------------------------

    async def _declare(self) -> None:
        """Write the app's schedules, once; unchanged ones stay as they are."""

        def decide(known: Mapping[str, ScheduleRecord | None], made: _Round) -> None:
            for name, before in known.items():
                if before is not None and self._only_missing:
                    continue  # Newer code may have changed it meanwhile.
                after = put(name, before, self._declared[name], made.now)
                if after != before:
                    made.rung[name] = Rung(record=after)

        while names := self._undeclared[:BATCH]:
            await self._apply(names, decide)
            del self._undeclared[: len(names)]

    # -- schedules that are due ----------------------------------------------------------------

    async def _look_at_ended(self) -> None:
        """Look at schedules whose last job has ended here: a tick may have waited for that."""
        while names := list(self._ended)[:BATCH]:
            over = {self._ended.pop(name): False for name in names}
            await self._decide(names, over, len(names))

    async def _ring(
        self, schedules: Mapping[str, ScheduleRecord], now: datetime
    ) -> Mapping[str, Rung]:
        last = {
            each.last_job: each.schedule.overlap
            for each in schedules.values()
            if each.last_job is not None and each.schedule.overlap != "allow"
        }
        jobs = await self._store.get_many(list(last)) if last else {}
        running = {
            job: job in jobs and holds_up(jobs[job], overlap) for job, overlap in last.items()
        }
        wanted = 0
        for name, each in schedules.items():
            with suppress(ConfigError):  # The look finds it broken in a moment.
                wanted += len(owed(name, each, now))
        return await self._decide(schedules, running, wanted)

    async def _decide(
        self, names: Collection[str], running: Mapping[UUID, bool], wanted: int
    ) -> Mapping[str, Rung]:
        if not names:
            return {}
        ids = [self._ids() for _ in range(min(wanted, _MAX_CHANGES))]

        spans = TickTraces(self._traces)

        def decide(known: Mapping[str, ScheduleRecord | None], made: _Round) -> None:
            spans.begin()
            left, look = list(ids), Look(now=made.now, running=running)
            for name, each in known.items():
                if each is None or not self._may_tick(name, each):
                    continue
                try:
                    if rung := ring(name, each, look, left):
                        made.rung[name] = spans.around(rung)
                except ConfigError as error:
                    # Its alarm stays as it is: another host may be able to compute it.
                    made.broken[name] = str(error)
                    self._broken[name] = each.schedule, str(error)

        done = await self._apply(names, decide)
        spans.end()
        for name, rung in done.rung.items():
            _log_ticks(name, rung)
        for name, why in done.broken.items():
            self._log_broken(name, why)
        return done.rung

    async def _correct_alarms(self, now: datetime) -> None:
        """Correct alarms that a wrong clock has set so far ahead that they would never be due.

        Checked when the clock has gone back, soon after the start, and every hour.
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
        if known is not None and self._may_tick(name, known):
            with suppress(ConfigError):  # The look finds it broken when its alarm is due.
                return righted(name, known, now)
        return None

    async def _handle_others(self, ringing: Ringing) -> None:
        for prefix, handler in self._others.items():
            if names := [name for name in ringing.records if name.startswith(prefix)]:
                await handler.forget(names[:_MAX_READ])

    # -- records that this worker may not tick -------------------------------------------------

    async def _put_off(
        self, names: Collection[str], shown: Mapping[str, ScheduleRecord | None], ringing: Ringing
    ) -> bool:
        """Postpone records that evidently no worker handles, so that they block no others."""
        found = ringing.records
        stale = [
            name for name in names if _is_stale(shown[name], found[RECORD + name], ringing.now)
        ]
        if not stale:
            return False
        for begin in range(0, min(len(stale), _MAX_CHANGES), BATCH):
            done = await self._apply(stale[begin : begin + BATCH], self._leave)
            for name, why in done.broken.items():
                self._broken.pop(name, None)  # It is tried again when its alarm is due again.
                self._log_broken(name, why)
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

    def _log_broken(self, name: str, why: str) -> None:
        if name not in self._logged:
            self._logged.add(name)
            log.error("schedule.broken", schedule=name, why=why)


def _is_stale(known: ScheduleRecord | None, record: Json, now: datetime) -> bool:
    return bool(put_off_unread(record, now) if known is None else put_off(known, now))


def _choose(schedules: Mapping[str, ScheduleRecord]) -> Mapping[str, ScheduleRecord]:
    """Choose as many as are ticked at once; other workers choose others."""
    if len(schedules) <= BATCH:
        return schedules
    return {name: schedules[name] for name in random.sample(sorted(schedules), BATCH)}


def _time_left(ringing: Ringing, done: Mapping[str, Rung]) -> float:
    """Return how long no alarm will be due, as far as is known."""
    alarms = [ringing.next, *(each.record.alarm for each in done.values())]
    left = [(alarm - ringing.now).total_seconds() for alarm in alarms if alarm is not None]
    # An alarm that is due already is another worker's, and no reason to look at once.
    soonest = min((each for each in left if each > 0), default=_MAX_PAUSE_SECONDS)
    return min(soonest, _MAX_PAUSE_SECONDS) + random.uniform(0, _STAGGER_SECONDS)  # noqa: S311 - spreads load.


def _log_ticks(name: str, rung: Rung) -> None:
    for job in rung.jobs:
        fields = {"schedule": name, "kind": job.kind, "job_id": str(job.id)}
        log.debug("schedule.ticked", **fields, tick=job.headers[TICK])
    if rung.overlapped:
        log.warning(
            "schedule.skipped",
            schedule=name,
            tick=rung.overlapped[-1].isoformat(),
            why=f"the job of the previous tick, {rung.record.last_job}, is not finished",
        )
    if rung.late:
        log.warning(
            "schedule.missed",
            schedule=name,
            ticks=rung.late,
            why="no worker could enqueue them in time: none was running, or the store was away",
            catch_up=rung.record.schedule.catch_up,
        )
