"""Owns how tests begin a schedule, and let its alarm go off."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from windlass.core.jobs.job import TICK, NewJob
from windlass.core.schedules.cron import cadence
from windlass.core.schedules.definition import Manner, Schedule
from windlass.core.schedules.schedule import Look, Rung, ScheduleRecord, put, ring

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
JOB = NewJob(id=UUID(int=1), kind="report", payload=b'{"a": 1}', queue="mail")
IDS = [UUID(int=number) for number in range(100, 1_200)]


def schedule(job: NewJob = JOB, *, every: Any = "1m", cron: Any = None, **manner: Any) -> Schedule:
    made = cadence(every=None if cron else every, cron=cron, tz=None)
    return Manner(**manner).schedule(job, made, declared=False)


def begun(**manner: Any) -> ScheduleRecord:
    return put("s", None, schedule(**manner), NOON)


def look(
    known: ScheduleRecord, after: timedelta, *, running: bool | None = False, ids: int = 1_000
) -> Rung | None:
    """Look at a schedule so long after noon; None says that nobody knows whether its job runs."""
    jobs = {} if known.last_job is None or running is None else {known.last_job: running}
    return ring("s", known, Look(now=NOON + after, running=jobs), IDS[:ids])


def rung(known: ScheduleRecord, after: timedelta, **more: Any) -> Rung:
    found = look(known, after, **more)
    assert found is not None
    return found


def minutes(found: Rung) -> list[float]:
    """Return the ticks that made a job, in minutes after noon."""
    ticks = [datetime.fromisoformat(job.headers[TICK]) for job in found.jobs]
    return [(tick - NOON) / MINUTE for tick in ticks]
