"""Owns the records of schedules, and how a tick changes them.

One record holds one schedule, and its alarm goes off when there is something to do. Ticks are
decided under the record's lock and by its `next`, so that a tick is decided once, whichever worker
comes first.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from uuid import UUID

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from windlass.core.jobs.job import Job, NewJob
from windlass.core.jobs.states import FINISHED, State
from windlass.core.records import Json
from windlass.core.schedules.definition import Overlap, Schedule

RECORD = "schedule:"
"""The prefix of the records of schedules."""
UNSERVED = "unserved:"
"""The prefix of the records of unserved schedules, beside their own: they are few, and found
without reading all. They may be out of date; the schedule's own record counts."""
BATCH = 100
"""How many schedules are changed at once."""
GRACE = timedelta(minutes=1)
"""How late a tick may be that is not caught up."""
ASTRAY = timedelta(hours=1)
"""A store's clock that is set back by less makes schedules wait until it has caught up."""
_SOONEST, _LATEST = timedelta(seconds=1), timedelta(seconds=30)
"""When a tick that waits for the last one is considered again."""

_FAILED = frozenset({"failed", "timed out"})


class ScheduleRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule as the store holds it, with its progress."""

    schedule: Schedule
    since: datetime
    next: datetime | None
    """The tick that comes next; None if none ever does."""
    alarm: datetime | None
    """When it is to be considered; None while it is paused."""
    paused_at: datetime | None = None
    last_tick: datetime | None = None
    last_job: UUID | None = None
    """The job of the last tick, or of a run by hand."""
    ticks: int = 0
    """How many ticks have made a job."""
    skipped: int = 0
    """How many made none: missed and not caught up, or while the last one ran."""
    unserved: bool = False
    """Whether it was due for long, and no worker served it."""


def read_record(record: Json | None) -> ScheduleRecord | None:
    """Return the schedule in a record; None if it is unreadable, maybe of a later release."""
    if record is None:
        return None
    try:
        return msgspec.convert(record, ScheduleRecord)
    except msgspec.ValidationError:
        return None


def record_of(known: ScheduleRecord) -> Json:
    record: Json = msgspec.to_builtins(known)
    return record


def mark_of(record: Json, why: str | None = None) -> Json:
    """Return the record of an unserved schedule, with its tick and the reason."""
    return {"next": record.get("next")} | ({} if why is None else {"why": why})


# -- operations ------------------------------------------------------------------------------------


def put(
    name: str, known: ScheduleRecord | None, schedule: Schedule, now: datetime
) -> ScheduleRecord:
    """Return the record after a schedule was put.

    If it ticks at the same times as before it continues where it is, paused or not.
    """
    if known is None:
        first = schedule.cadence.first(now)
        known = ScheduleRecord(schedule=schedule, since=now, next=first, alarm=None)
    elif known.schedule.cadence != schedule.cadence:
        known = replace(known, next=schedule.cadence.first(now))
    return _set(name, replace(known, schedule=schedule))


def pause(known: ScheduleRecord, now: datetime) -> ScheduleRecord:
    return replace(known, paused_at=known.paused_at or now, alarm=None, unserved=False)


def resume(name: str, known: ScheduleRecord, now: datetime) -> ScheduleRecord:
    """Return the record of a resumed schedule; ticks of the pause are not caught up."""
    if known.paused_at is None:
        return known
    known = righted(name, known, now) or known
    upcoming = None if known.next is None else known.schedule.cadence.resumed(known.next, now)
    return _set(name, replace(known, paused_at=None, next=upcoming))


def ran(known: ScheduleRecord, job_id: UUID, tick: datetime) -> ScheduleRecord:
    """Return the record after a tick by hand; the others come as they would."""
    return replace(known, last_tick=tick, last_job=job_id, ticks=known.ticks + 1)


def put_off(known: ScheduleRecord, now: datetime) -> ScheduleRecord | None:
    """Return the record of an unserved schedule; None unless that is evident."""
    if known.alarm is None or known.alarm > now or not (known.unserved or is_late(known, now)):
        return None
    return replace(known, unserved=True, alarm=now + GRACE)


def put_off_unread(record: Json | None, now: datetime) -> Json | None:
    """Return an unreadable record marked as unserved; None unless it is.

    A worker that can read it finds it unchanged but for that mark.
    """
    if record is None:
        return None
    try:
        alarm = msgspec.convert(record.get("alarm"), datetime)
        is_early = now <= alarm + GRACE
    except (msgspec.ValidationError, TypeError):
        is_early = False  # The alarm is unreadable, and it went off.
    return None if is_early and not record.get("unserved") else {**record, "unserved": True}


def is_late(known: ScheduleRecord, now: datetime) -> bool:
    """Return whether a schedule should have been considered long ago."""
    return known.alarm is not None and known.alarm + GRACE < now


def righted(name: str, known: ScheduleRecord, now: datetime) -> ScheduleRecord | None:
    """Return the record of a schedule that is further away than any gap of it; None if it is not.

    That happens after a clock was far ahead for a while. A clock that is set back by less than
    `ASTRAY` is waited for, so that no tick comes twice.
    """
    if known.next is None:
        return None
    cadence, upcoming = known.schedule.cadence, known.next
    if upcoming > now + ASTRAY:
        latest = cadence.following(now + ASTRAY)
        if latest is not None and upcoming > latest:
            return _set(name, replace(known, next=cadence.recalled(upcoming, now)))
    expected = max(upcoming + offset(name, known.schedule, upcoming), now)
    if known.alarm is not None and known.alarm > expected + ASTRAY:
        return _set(name, known)
    return None


def _set(name: str, known: ScheduleRecord) -> ScheduleRecord:
    if known.paused_at is not None or known.next is None:
        return replace(known, alarm=None, unserved=False)
    alarm = known.next + offset(name, known.schedule, known.next)
    return replace(known, alarm=alarm, unserved=False)


def offset(name: str, schedule: Schedule, tick: datetime) -> timedelta:
    """Return the jitter of a tick: always the same, and different from others."""
    if not schedule.jitter:
        return timedelta(0)
    digest = sha256(f"{name} {tick.timestamp()}".encode()).digest()
    return schedule.jitter * (int.from_bytes(digest[:6]) / (1 << 48))


# -- ticking ---------------------------------------------------------------------------------------


class Rung(Struct, frozen=True, kw_only=True):
    """The result of considering a schedule whose alarm went off."""

    record: ScheduleRecord
    jobs: tuple[NewJob, ...] = ()
    late: int = 0
    """How many ticks made no job since they were missed."""
    overlapped: tuple[datetime, ...] = ()
    """The ticks that made no job since the last one ran."""


class Look(Struct, frozen=True, kw_only=True):
    """The surroundings in which schedules are considered."""

    now: datetime
    running: Mapping[UUID, bool] = field(default_factory=dict)
    """Whether the jobs of last ticks hold up the next, as far as they were read."""


def holds_up(job: Job, overlap: Overlap) -> bool:
    """Return whether the job of a tick keeps the next tick from making one.

    A job that failed and waits for its retry holds up nothing but a schedule that queues its ticks:
    otherwise one failure would stop the schedule for as long as its retries wait.
    """
    if job.state in FINISHED:
        return False
    last = job.history[-1] if job.history else None
    waits_for_retry = (
        job.state is State.SCHEDULED
        and job.waiting_for is None
        and last is not None
        and last.outcome in _FAILED
        and last.number == job.attempt  # A later run that sleeps in a step is not in the history.
    )
    return overlap == "queue" or not waits_for_retry


def owed(name: str, known: ScheduleRecord, now: datetime) -> list[datetime]:
    """Return the ticks that are due and become jobs, oldest first."""
    return _due(name, known, now)[0]


def ring(name: str, known: ScheduleRecord, look: Look, ids: list[UUID]) -> Rung | None:
    """Decide what a schedule does now: which ticks make a job, which do not, and what is next.

    None if there is nothing to do, since another worker was first. It takes the ids it needs; ticks
    for which there is none are left for the next time.
    """
    wanted, missed, upcoming = _due(name, known, look.now)
    if not wanted and not missed:
        right = _set(name, known)
        return None if right.alarm == known.alarm else Rung(record=right)
    after = replace(known, next=upcoming, skipped=known.skipped + missed)
    if not wanted:
        return Rung(record=_set(name, after), late=missed)
    overlap = known.schedule.overlap
    if overlap != "allow" and known.last_job is not None:
        running = look.running.get(known.last_job)
        if running is None:
            return None  # It began after the jobs of last ticks were read.
        if running and overlap == "queue":
            return Rung(record=_wait(known, wanted[0], look.now))
        if running:
            after = replace(after, skipped=after.skipped + len(wanted))
            return Rung(record=_set(name, after), late=missed, overlapped=tuple(wanted))
    return _tick(name, after, wanted, missed, look.now, ids)


def _tick(
    name: str,
    after: ScheduleRecord,
    wanted: list[datetime],
    missed: int,
    now: datetime,
    ids: list[UUID],
) -> Rung | None:
    in_turn = after.schedule.overlap == "queue"
    room = 1 if in_turn else len(wanted)
    ticks = wanted[: min(room, len(ids))]
    if not ticks:
        return None
    jobs = tuple(after.schedule.job_of(ids.pop(0), name, tick) for tick in ticks)
    after = replace(after, last_tick=ticks[-1], last_job=jobs[-1].id, ticks=after.ticks + len(jobs))
    if len(ticks) == len(wanted):
        return Rung(record=_set(name, after), jobs=jobs, late=missed)
    soon = now + _SOONEST if in_turn else now
    left = replace(after, next=wanted[len(ticks)], alarm=soon, unserved=False)
    return Rung(record=left, jobs=jobs, late=missed)


def _wait(known: ScheduleRecord, since: datetime, now: datetime) -> ScheduleRecord:
    pause = min(max((now - since) / 10, _SOONEST), _LATEST)
    return replace(known, alarm=now + pause, unserved=False)


def _due(
    name: str, known: ScheduleRecord, now: datetime
) -> tuple[list[datetime], int, datetime | None]:
    """Return the ticks that become jobs, the number of other missed ticks, and the next tick."""
    schedule, cadence = known.schedule, known.schedule.cadence
    if known.next is None or known.paused_at is not None:
        return [], 0, known.next
    most = schedule.catch_up_limit if schedule.catch_up == "all" else 1
    # One more: the latest may not be due yet, by its jitter.
    due, older = cadence.due(known.next, now, most + 1)
    upcoming = cadence.following(due[-1]) if due else known.next
    while due and due[-1] + offset(name, schedule, due[-1]) > now:
        upcoming = due.pop()
    if len(due) > most:
        older += len(due) - most
        del due[:-most]
    if not due:
        return [], 0, known.next
    expected = due[-1] + offset(name, schedule, due[-1])
    if known.alarm is not None and not known.unserved:
        # The tick may have waited for the job before it until now.
        expected = max(expected, known.alarm)
    late = now - expected
    if schedule.catch_up == "skip" and late >= GRACE:
        return [], older + len(due), upcoming
    return due, older, upcoming
