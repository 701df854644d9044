"""Owns what becomes of jobs when their store was restored from a backup.

What happened after the backup is not in it: jobs that are waiting or running there may have been
done long ago. They are parked until a person releases or cancels them.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
from msgspec import Struct

from windlass.core.jobs.job import EVENT, FLOW, Attempt, Job
from windlass.core.jobs.moves import Move, Verb
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import WAITING, State
from windlass.core.records import Json
from windlass.core.schedules.schedule import ScheduleRecord, pause, resume

RECORD = "restored"
"""The name of the record that says when jobs were parked last."""
LINEAGE = "lineage"
"""The name of the record with the history of the store's server."""
CHANGED = (
    "the history of the store's server is another: a standby was promoted, or a backup restored"
)
PARKED = "restored"
"""The key under which a job is parked until a person releases it."""
PARKED_WAIT = "restored:event"
"""The same for a job that waited for an event."""
WAKING = f"{EVENT}windlass:restored"
"""The key of a released job that waited for an event, until it looks for its event again."""
REASON = "parked after a restore"


class Parked(Struct, frozen=True, kw_only=True):
    """What was parked, or would be."""

    running: int = 0
    """Jobs that ran when the backup was made."""
    waiting: int = 0
    """Jobs that were pending, scheduled, or waiting for an event."""
    following: int = 0
    """Jobs that wait for others of their flow, and are held up by these."""
    schedules: tuple[str, ...] = ()
    """Schedules whose missed ticks are left out."""
    bulk_operations: tuple[str, ...] = ()
    """Bulk operations that were under way, and are paused."""
    is_dry_run: bool = False

    @property
    def jobs(self) -> int:
        """The number of jobs that were parked."""
        return self.running + self.waiting


class Lineage(Struct, frozen=True, kw_only=True):
    """The history of the store's server, as workers saw it last."""

    name: str
    since: datetime
    """When a worker saw it first."""
    before: str | None = None
    """The one before; None: there was none."""

    @property
    def record(self) -> Json:
        """As it is kept in a record."""
        record: Json = msgspec.to_builtins(self)
        return record


def read_lineage(record: Json | None) -> Lineage | None:
    """Return the lineage in a record; None if there is none, or an unreadable one."""
    try:
        return None if record is None else msgspec.convert(record, Lineage)
    except msgspec.ValidationError:
        return None


def next_lineage(known: Lineage | None, name: str, now: datetime) -> Lineage | None:
    """Return the lineage that is to be kept; None if it is known already."""
    if known is not None and known.name == name:
        return None
    return Lineage(name=name, since=now, before=None if known is None else known.name)


def is_parked(job: Job) -> bool:
    """Return whether a job waits for a person after a restore."""
    return job.state is State.SCHEDULED and job.waiting_for in (PARKED, PARKED_WAIT)


def is_following(job: Job) -> bool:
    """Return whether a job cannot start before others of its flow."""
    return job.waiting_for is not None and job.waiting_for.startswith(FLOW)


def park_running(job: Job) -> Transition:
    """Return the transition by which a running job is parked; its lost run is not charged."""
    if job.token is None:
        raise ValueError(f"job {job.id} is {job.state}, so it has no run that could be lost")
    attempt = Attempt(
        number=job.attempt,
        worker=job.worker,
        started_at=job.started_at,
        duration=timedelta(0),
        outcome="released",
    )
    return Transition(
        id=job.id,
        token=job.token,
        state=State.SCHEDULED,
        reason=REASON,
        attempt=attempt,
        waiting_for=PARKED,
    )


def park_waiting(job: Job) -> Move | None:
    """Return the move by which a waiting job is parked; None if it is, or follows its flow."""
    if job.state not in WAITING or is_parked(job) or is_following(job):
        return None
    waits = job.waiting_for is not None and job.waiting_for.startswith(EVENT)
    return Move(verb=Verb.PARK, id=job.id, waiting_for=PARKED_WAIT if waits else PARKED)


def release(job: Job) -> Move | None:
    """Return the move by which a parked job is released; None if it is not parked.

    One that waited for an event is woken, so that it finds an event that came meanwhile; if none
    did, it waits again.
    """
    if not is_parked(job):
        return None
    if job.waiting_for == PARKED_WAIT:
        return Move(verb=Verb.PARK, id=job.id, waiting_for=WAKING)
    return Move(verb=Verb.UNPARK, id=job.id, waiting_for=PARKED)


def without_missed_ticks(name: str, known: ScheduleRecord, now: datetime) -> ScheduleRecord | None:
    """Return a schedule that goes on with its next tick; None if it has missed none."""
    if known.paused_at is not None or known.next is None or known.next > now:
        return None
    return resume(name, pause(known, now), now)
