"""Owns schedules: what is to be enqueued and when, the record of that, and how a tick changes it.

One record holds one schedule, and its alarm goes off when there is something to do. Whoever decides
does so under the record's lock and by its `next`, so that a tick is decided once, whoever comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Literal, get_args
from uuid import UUID

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from windlass.core.cadence import Cadence
from windlass.core.durations import Duration, duration, human
from windlass.core.errors import ConfigError
from windlass.core.job import OVERLAP, SCHEDULE, TICK, Json, NewJob, UniqueKey
from windlass.core.secret import MARK

RECORD = "schedule:"
"""How the names of the records begin that hold schedules."""
UNSERVED = "unserved:"
"""How the names of the records begin that say which schedules nobody served, beside their own: so
those few are found without reading all. They may be out of date; the schedule's own record counts.
"""
BATCH = 100
"""How many schedules are changed at once."""
GRACE = timedelta(minutes=1)
"""How late a tick may be that is not caught up."""
ASTRAY = timedelta(hours=1)
"""By how much a store's clock may be set back so that schedules wait until it has caught up."""
_SOONEST, _LATEST = timedelta(seconds=1), timedelta(seconds=30)
"""When a tick that waits for the one before it is looked at again."""

CatchUp = Literal["skip", "latest", "all"]
"""What becomes of ticks that nobody was there for: none, one for all of them, or each."""
Overlap = Literal["skip", "queue", "allow"]
"""What a tick does while the job of the one before is not finished: go, wait, or not mind."""


class Template(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The job of every tick: what does not change from one to the next."""

    kind: str
    payload: str
    queue: str
    priority: int = 0
    key: str = ""
    delay: timedelta | None = None
    expires: timedelta | None = None
    max_retries: int | None = None
    timeout: timedelta | None = None
    unique: str | None = None
    unique_until: Literal["claimed", "settled"] | None = None
    unique_for: timedelta | None = None
    on_duplicate: Literal["keep", "replace", "push", "supersede"] = "keep"
    headers: dict[str, str] = {}

    def made(self, job_id: UUID, headers: dict[str, str]) -> NewJob:
        """Return one such job."""
        unique = None
        if self.unique is not None:
            until = self.unique_until or self.unique_for or "settled"
            unique = UniqueKey(key=self.unique, until=until, on_duplicate=self.on_duplicate)
        return NewJob(
            id=job_id,
            kind=self.kind,
            payload=self.payload.encode(),
            queue=self.queue,
            priority=self.priority,
            key=self.key,
            due=self.delay,
            expires=self.expires,
            max_retries=self.max_retries,
            timeout=self.timeout,
            unique=unique,
            headers=headers,
        )


def template(job: NewJob) -> Template:
    """Return what every tick enqueues, by a job that would be one of them.

    Raises:
        ConfigError: it has a time of its own, or a secret.
    """
    if isinstance(job.due, datetime) or isinstance(job.expires, datetime):
        raise ConfigError("a schedule has many jobs, and `at` or `expires` is one time for all")
    payload = job.payload.decode()
    if f'"{MARK}"' in payload:
        raise ConfigError(
            "a schedule cannot keep a Secret, since `windlass keys rotate` does not reach it: "
            "give the handler what it needs to look the secret up"
        )
    unique, until = job.unique, None if job.unique is None else job.unique.until
    return Template(
        kind=job.kind,
        payload=payload,
        queue=job.queue,
        priority=job.priority,
        key=job.key,
        delay=job.due,
        expires=job.expires,
        max_retries=job.max_retries,
        timeout=job.timeout,
        unique=None if unique is None else unique.key,
        unique_until=None if isinstance(until, timedelta) else until,
        unique_for=until if isinstance(until, timedelta) else None,
        on_duplicate="keep" if unique is None else unique.on_duplicate,
        headers=job.headers,
    )


class Schedule(Struct, frozen=True, kw_only=True):
    """What somebody wants to happen time and again."""

    job: Template
    cadence: Cadence
    jitter: timedelta = timedelta(0)
    catch_up: CatchUp = "latest"
    catch_up_limit: int = 100
    overlap: Overlap = "skip"
    declared: bool = False
    """Whether it is part of an app's code, so that it ticks only where that code runs."""

    def job_of(self, job_id: UUID, name: str, tick: datetime) -> NewJob:
        """Return the job of one tick."""
        headers = {**self.job.headers, SCHEDULE: name, TICK: tick.isoformat()}
        if self.overlap == "queue":
            headers[OVERLAP] = self.overlap
        return self.job.made(job_id, headers)


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How a schedule ticks, as somebody wrote it."""

    jitter: Duration = 0
    catch_up: CatchUp = "latest"
    catch_up_limit: int = 100
    overlap: Overlap | None = None

    def schedule(self, job: NewJob, cadence: Cadence, *, declared: bool) -> Schedule:
        """Check it, and return the schedule.

        Raises:
            ConfigError: a part of it is not one of those that there are, or does not go together.
        """
        self._check()
        return Schedule(
            job=template(job),
            cadence=cadence,
            jitter=self._spread(cadence),
            catch_up=self.catch_up,
            catch_up_limit=self.catch_up_limit,
            overlap=self.overlap or ("queue" if self.catch_up == "all" else "skip"),
            declared=declared,
        )

    def _check(self) -> None:
        for name, given, known in (
            ("catch_up", self.catch_up, get_args(CatchUp)),
            ("overlap", self.overlap or "skip", get_args(Overlap)),
        ):
            if given not in known:
                raise ConfigError(f"{name}={given!r} is unknown; it is one of: {', '.join(known)}")
        if self.catch_up == "all" and self.overlap == "skip":
            raise ConfigError(
                'catch_up="all" wants every tick, and overlap="skip" not every one: write '
                'overlap="queue" (one after the other) or overlap="allow" (all at once)'
            )
        limit = self.catch_up_limit
        if type(limit) is not int or not 1 <= limit <= 1_000:
            raise ConfigError(f"catch_up_limit is between 1 and 1000, and {limit!r} is not")

    def _spread(self, cadence: Cadence) -> timedelta:
        try:
            jitter = duration(self.jitter)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"jitter={self.jitter!r} is no duration: {error}") from None
        if jitter > cadence.gap:
            raise ConfigError(
                f"jitter={self.jitter!r} is longer than the time between two ticks, "
                f"{human(cadence.gap)}: one would get in the way of the next"
            )
        return jitter


class ScheduleRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule as the store holds it, with how far it is."""

    schedule: Schedule
    since: datetime
    next: datetime | None
    """The tick that comes next; None if none ever does."""
    alarm: datetime | None
    """When somebody is to look; None while it is paused."""
    paused_at: datetime | None = None
    last_tick: datetime | None = None
    last_job: UUID | None = None
    """The job of the last tick, or of a run by hand."""
    ticks: int = 0
    """How many have made a job."""
    skipped: int = 0
    """How many made none: missed and not caught up, or while the one before ran."""
    unserved: bool = False
    """Whether it was due for long, and no worker minded."""


def read_record(record: Json | None) -> ScheduleRecord | None:
    """Return what a record says; None for one that cannot be read, maybe of a later release."""
    if record is None:
        return None
    try:
        return msgspec.convert(record, ScheduleRecord)
    except msgspec.ValidationError:
        return None


def record_of(known: ScheduleRecord) -> Json:
    """Return the record of a schedule."""
    record: Json = msgspec.to_builtins(known)
    return record


def mark_of(record: Json, why: str | None = None) -> Json:
    """Return the record that says that nobody serves a schedule, since which tick, and why."""
    return {"next": record.get("next")} | ({} if why is None else {"why": why})


# -- what people do to a schedule ------------------------------------------------------------------


def put(
    name: str, known: ScheduleRecord | None, schedule: Schedule, now: datetime
) -> ScheduleRecord:
    """Return the record after somebody has said what a schedule is.

    One that ticks at the same times as before goes on where it is, paused or not.
    """
    if known is None:
        first = schedule.cadence.first(now)
        known = ScheduleRecord(schedule=schedule, since=now, next=first, alarm=None)
    elif known.schedule.cadence != schedule.cadence:
        known = replace(known, next=schedule.cadence.first(now))
    return _set(name, replace(known, schedule=schedule))


def pause(known: ScheduleRecord, now: datetime) -> ScheduleRecord:
    """Return the record of a schedule that ticks no more."""
    return replace(known, paused_at=known.paused_at or now, alarm=None, unserved=False)


def resume(name: str, known: ScheduleRecord, now: datetime) -> ScheduleRecord:
    """Return the record of a schedule that ticks again; what came in between is not caught up."""
    if known.paused_at is None:
        return known
    known = righted(name, known, now) or known
    upcoming = None if known.next is None else known.schedule.cadence.resumed(known.next, now)
    return _set(name, replace(known, paused_at=None, next=upcoming))


def ran(known: ScheduleRecord, job_id: UUID, tick: datetime) -> ScheduleRecord:
    """Return the record after a tick by hand; the others come as they would."""
    return replace(known, last_tick=tick, last_job=job_id, ticks=known.ticks + 1)


def put_off(known: ScheduleRecord, now: datetime) -> ScheduleRecord | None:
    """Return the record of a schedule that nobody minds; None unless that is evident."""
    if known.alarm is None or known.alarm > now or not (known.unserved or is_late(known, now)):
        return None
    return replace(known, unserved=True, alarm=now + GRACE)


def put_off_unread(record: Json | None, now: datetime) -> Json | None:
    """Return a record that cannot be read here as one that nobody minds; None unless that is so.

    Whoever can read it may come yet, and finds it as it was but for that.
    """
    if record is None:
        return None
    try:
        alarm = msgspec.convert(record.get("alarm"), datetime)
        is_early = now <= alarm + GRACE
    except (msgspec.ValidationError, TypeError):
        is_early = False  # It does not tell since when; and it rings.
    return None if is_early and not record.get("unserved") else {**record, "unserved": True}


def is_late(known: ScheduleRecord, now: datetime) -> bool:
    """Say whether a schedule should have been looked at long ago."""
    return known.alarm is not None and known.alarm + GRACE < now


def righted(name: str, known: ScheduleRecord, now: datetime) -> ScheduleRecord | None:
    """Return the record of a schedule that is further away than any gap of it; None if it is not.

    So it is after a clock was far ahead for a while. One that is set back by less than `ASTRAY` is
    waited for, so that no tick comes twice.
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
    """Return the record with its alarm at its next tick, unless it is paused."""
    if known.paused_at is not None or known.next is None:
        return replace(known, alarm=None, unserved=False)
    alarm = known.next + offset(name, known.schedule, known.next)
    return replace(known, alarm=alarm, unserved=False)


def offset(name: str, schedule: Schedule, tick: datetime) -> timedelta:
    """Return by how much the jitter delays a tick: always the same, and different from others."""
    if not schedule.jitter:
        return timedelta(0)
    digest = sha256(f"{name} {tick.timestamp()}".encode()).digest()
    return schedule.jitter * (int.from_bytes(digest[:6]) / (1 << 48))


# -- ticking ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Rung:
    """What comes of a look at a schedule whose alarm went off."""

    record: ScheduleRecord
    jobs: tuple[NewJob, ...] = ()
    late: int = 0
    """How many ticks made no job since they were missed."""
    overlapped: tuple[datetime, ...] = ()
    """The ticks that made no job since the one before ran."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """What is known of the world when schedules are looked at."""

    now: datetime
    running: Mapping[UUID, bool] = field(default_factory=dict)
    """Whether the jobs of last ticks are unfinished, as far as anybody looked."""


def owed(name: str, known: ScheduleRecord, now: datetime) -> list[datetime]:
    """Return the ticks that are due, and are to make a job, oldest first."""
    return _due(name, known, now)[0]


def ring(name: str, known: ScheduleRecord, look: Look, ids: list[UUID]) -> Rung | None:
    """Decide what a schedule does now: which ticks make a job, which do not, and what is next.

    None if there is nothing to do, since somebody else was here before. It takes from the ids what
    it needs; ticks for which there is none are left for the next look.
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
            return None  # It was begun after anybody looked.
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
    """Return the record of a schedule that is to be looked at again soon, and ever less often."""
    pause = min(max((now - since) / 10, _SOONEST), _LATEST)
    return replace(known, alarm=now + pause, unserved=False)


def _due(
    name: str, known: ScheduleRecord, now: datetime
) -> tuple[list[datetime], int, datetime | None]:
    """Return the ticks that are to make a job, how many others were missed, and what is next."""
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
        # It may have waited for the job before it, and was to be looked at again only then.
        expected = max(expected, known.alarm)
    late = now - expected
    if schedule.catch_up == "skip" and late >= GRACE:
        return [], older + len(due), upcoming
    return due, older, upcoming
