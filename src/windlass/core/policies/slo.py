"""Owns service-level targets: how soon jobs of a kind should start, and the count of late ones."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct

from windlass.core.errors import ConfigError
from windlass.core.jobs.job import Job
from windlass.core.records import Json
from windlass.core.values.durations import Duration, duration

TARGETS = "slo:"
"""The prefix of the records that count the starts of a kind."""
_START_WITHIN = re.compile(r"\s*starts?\s+within\s+(.+)", re.IGNORECASE)


def checked_target(kind: str, slo: Duration) -> timedelta:
    """Read a target: `"start within 5s"`, or any duration."""
    said = _START_WITHIN.fullmatch(slo) if isinstance(slo, str) else None
    try:
        target = duration(said[1] if said else slo)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"kind {kind!r}: slo must be written like slo='start within 5s': {error}"
        ) from None
    if not target:
        raise ConfigError(f"kind {kind!r}: slo must be greater than zero; write it like slo='5s'")
    return target


class Late(Struct, frozen=True, kw_only=True):
    """A job that started later than its target."""

    job: UUID
    started_at: datetime
    waited: timedelta


class Tally(Struct, frozen=True, kw_only=True):
    """How many jobs of a kind started for the first time, and how many of them late."""

    started: int = 0
    late: int = 0
    worst: timedelta = timedelta(0)
    last: Late | None = None

    def __add__(self, other: Tally) -> Tally:
        lasts = [each.last for each in (self, other) if each.last is not None]
        return Tally(
            started=self.started + other.started,
            late=self.late + other.late,
            worst=max(self.worst, other.worst),
            last=max(lasts, key=lambda late: late.started_at, default=None),
        )


def tally(job: Job, target: timedelta) -> Tally:
    """Return the count of one started job: only its first start counts."""
    if job.started_at is None or job.attempt != 1:
        return Tally()
    waited = job.started_at - job.due_at
    if waited <= target:
        return Tally(started=1)
    late = Late(job=job.id, started_at=job.started_at, waited=waited)
    return Tally(started=1, late=1, worst=waited, last=late)


def counted(known: Json | None, news: Tally, target: timedelta, now: datetime) -> Json:
    """Return the record of a kind with the counts of one worker added."""
    before = read_tally(known)
    total = before + news
    record: Json = {
        "target": target.total_seconds(),
        "since": (known or {}).get("since", now.isoformat()),
        "started": total.started,
        "late": total.late,
        "worst": total.worst.total_seconds(),
    }
    if total.last is not None:
        record["last"] = {
            "job": str(total.last.job),
            "started_at": total.last.started_at.isoformat(),
            "waited": total.last.waited.total_seconds(),
        }
    return record


def read_tally(record: Json | None) -> Tally:
    if record is None:
        return Tally()
    last = record.get("last")
    return Tally(
        started=record["started"],
        late=record["late"],
        worst=timedelta(seconds=record["worst"]),
        last=None
        if last is None
        else Late(
            job=UUID(last["job"]),
            started_at=datetime.fromisoformat(last["started_at"]),
            waited=timedelta(seconds=last["waited"]),
        ),
    )
