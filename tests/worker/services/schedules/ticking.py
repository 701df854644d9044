"""Owns how tests put schedules on a store with a clock, and read the jobs of their ticks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support.app_on_store import Bed, Clock
from windlass import Context, Job, State, Windlass
from windlass.core.jobs.job import TICK
from windlass.core.jobs.queries import JobFilter
from windlass.core.schedules.schedule import RECORD
from windlass.worker.services.schedules.schedule_ticker import ScheduleTicker

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def clocked(bed: Bed) -> tuple[Windlass, Clock]:
    clock = Clock()
    return bed.app(store=bed.store(clock=clock)), clock


def ticker(app: Windlass, *, store: Any = None) -> ScheduleTicker:
    """Make the service that a worker of an app would have."""
    return ScheduleTicker(
        app.store if store is None else store,
        kinds=dict.fromkeys(app.registry),
        declared=app.schedules.declared,
        ids=app.ids.next,
    )


async def jobs(app: Windlass) -> list[Job]:
    """Return all jobs, in the order of their ticks."""
    found = (await app.store.find(JobFilter(), limit=10_000)).jobs
    return sorted(found, key=lambda job: (job.headers.get(TICK, ""), job.id))


async def ticks(app: Windlass) -> list[float]:
    """Return for which ticks there are jobs, in minutes after noon."""
    times = [datetime.fromisoformat(job.headers[TICK]) for job in await jobs(app)]
    return [(time - NOON) / MINUTE for time in times]


def reporting(app: Windlass) -> Any:
    @app.job(queue="reports")
    async def report(ctx: Context, tenant: str = "acme") -> str:
        return f"{tenant} {ctx.scheduled_for}"

    return report


async def known(app: Windlass, name: str) -> bool:
    return RECORD + name in await app.store.records(RECORD)


async def have(app: Windlass, count: int, state: State) -> bool:
    found = await app.store.find(JobFilter(states=(state,)), limit=1_000)
    return len(found.jobs) >= count
