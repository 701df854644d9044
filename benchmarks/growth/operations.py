"""Owns what producers and workers do with a store, each as a measure that any store can repeat.

A measure prepares something of its own, which is not timed, and leaves as many jobs waiting as it
found, or a few more in every store alike.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from benchmarks.growth.fill import DEAD, FINISHED, LIVE, OVERDUE, add_to
from benchmarks.growth.stage import QUEUE, Measure, Sample, Stage
from windlass.core.jobs.queries import Retention

_BULK = 5_000
_PATIENCE_SECONDS = 120.0
_KEPT = Retention(finished=timedelta(days=7))
_KEPT_BY_ROW = Retention(finished=OVERDUE / 2)
_DEAD_KEPT = Retention(finished=timedelta(days=7), dead=OVERDUE / 2)
_PRUNED = 1_000


@dataclass(frozen=True, kw_only=True)
class Load:
    """How much of everything a sample does."""

    drained: int = 10_000
    enqueued: int = 500
    swept: int = 10


def operations(load: Load) -> Mapping[str, Measure]:
    """Return the measures by their names."""
    return {
        # First: a drain leaves few entries on each page of the index that a sweep walks.
        f"sweep ({load.swept})": partial(_sweep, load.swept),
        f"drain, one queue ({load.drained:,} jobs)": partial(_drain_one, load.drained),
        f"drain, all queues ({load.drained:,} jobs)": partial(_drain_all, load.drained),
        f"single enqueue ({load.enqueued:,})": partial(_enqueue, load.enqueued),
        f"promote {_PRUNED:,} due jobs": _promote,
        "prune, nothing to delete": partial(_prune, _KEPT),
        f"prune {_PRUNED:,} dead jobs": _prune_dead,
        f"prune {_PRUNED:,} finished jobs, row by row": _prune_rows,
    }


async def add(stage: Stage, jobs: int) -> None:
    """Add jobs to the queue that only measures use."""
    for first in range(0, jobs, _BULK):
        numbers = range(first, min(first + _BULK, jobs))
        await stage.app.aenqueue_many([stage.noop.draft(*_arguments(n)) for n in numbers])


def _arguments(number: int) -> tuple[int, dict[str, object], str]:
    """Return arguments as large as those of the jobs that a store was filled with.

    Of smaller jobs, each would be kept on another page, where the last large one has left room.
    """
    customer = {"id": number, "email": f"customer{number}@example.org", "vip": False}
    return number, customer, f"{number:032x}" * 4


async def _drain_one(jobs: int, stage: Stage) -> Sample:
    """Run jobs of a queue of their own while all others wait."""
    await add(stage, jobs)
    return await _run(stage, jobs, queues=[QUEUE])


async def _drain_all(jobs: int, stage: Stage) -> Sample:
    """Run jobs of all queues, of which each has its share, and add as many as were run."""
    add_to(stage.url, LIVE, stage.sizes, jobs, state="pending", ahead="0")
    sample = await _run(stage, jobs)
    left = stage.value("SELECT count(*) FROM windlass.jobs WHERE state = 'pending'")
    # Some for each queue, or there would be fewer lanes than before.
    rounds = math.ceil(max(stage.sizes.pending - left, 0) / stage.sizes.queues)
    missing = rounds * stage.sizes.queues
    add_to(stage.url, LIVE, stage.sizes, missing, state="pending", ahead="0")
    return sample


async def _run(stage: Stage, jobs: int, **options: object) -> Sample:
    """Run a worker until so many jobs have started; return what these starts took."""
    stage.tidy()
    stage.starts.expect(jobs)
    before = stage.clock()
    worker = asyncio.create_task(stage.app.arun_worker(**options))  # type: ignore[arg-type]
    try:
        await asyncio.wait_for(stage.starts.reached.wait(), _PATIENCE_SECONDS)
        spent = before.until(stage.clock())
    finally:
        worker.cancel()
        with suppress(asyncio.CancelledError):
            await worker
    return replace(spent, seconds=stage.starts.at[jobs - 1] - stage.starts.at[0])


async def _enqueue(jobs: int, stage: Stage) -> Sample:
    async def work() -> None:
        for _ in range(jobs):
            await stage.noop.aenqueue()

    sample = await stage.timed(work)
    stage.sql(f"DELETE FROM windlass.jobs WHERE queue = '{QUEUE}'")
    return sample


async def _sweep(times: int, stage: Stage) -> Sample:
    async def work() -> None:
        for _ in range(times):
            await stage.app.store.sweep()

    return await stage.timed(work)


async def _promote(stage: Stage) -> Sample:
    add_to(stage.url, LIVE, stage.sizes, _PRUNED, state="scheduled", ahead="-3 hours")
    return await stage.timed(lambda: stage.app.store.promote(_PRUNED))


async def _prune(kept: Retention, stage: Stage) -> Sample:
    return await stage.timed(lambda: stage.app.store.prune(kept, _PRUNED))


async def _prune_dead(stage: Stage) -> Sample:
    _add_old(stage, DEAD)
    return await _prune(_DEAD_KEPT, stage)


async def _prune_rows(stage: Stage) -> Sample:
    """Delete finished jobs as with a retention of more than thirty days."""
    _add_old(stage, FINISHED)
    return await _prune(_KEPT_BY_ROW, stage)


def _add_old(stage: Stage, statement: str) -> None:
    """Add jobs that are past their retention."""
    days = OVERDUE.days
    oldest, newest = f"{days + 1} days", f"{days} days"
    add_to(stage.url, statement, stage.sizes, _PRUNED, oldest=oldest, newest=newest)
