"""Owns the answers of the memory store to queries, each computed from a list of all jobs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from msgspec.structs import replace

from windlass.core.jobs.job import AGING, Job, Saga
from windlass.core.jobs.queries import (
    ErrorGroup,
    ErrorGroups,
    JobFilter,
    Page,
    Retention,
    briefly,
    id_range,
)
from windlass.core.jobs.states import FINISHED, WAITING, State
from windlass.core.search.matching import matches
from windlass.core.search.scan import Budget, Scan
from windlass.core.stats.depths import QueueCount, Standing


def find(
    jobs: Sequence[Job],
    which: JobFilter,
    now: datetime,
    *,
    limit: int,
    after: UUID | None,
    oldest_first: bool,
    brief: bool,
    budget: Budget | None,
) -> Page:
    # The clock of a test is the store's alone: ids do not follow it.
    first, last = id_range(which, after, oldest_first=oldest_first, ids_tell_time=False)
    within = [job for job in jobs if first <= job.id <= last]
    within.sort(key=lambda job: job.id, reverse=not oldest_first)
    scan = Scan(
        (first, last),
        limit=limit,
        budget=budget,
        oldest_first=oldest_first,
        now=time.monotonic(),
    )
    start = 0
    while not scan.is_over:
        piece = within[start:] if scan.rows is None else within[start : start + scan.rows]
        start += len(piece)
        found = [job for job in piece if matches(which, job, now)]
        edge = piece[-1].id if start < len(within) else None
        scan.add(found, edge, looked_at=len(piece), now=time.monotonic())
    page = scan.page()
    return replace(page, jobs=tuple(map(briefly, page.jobs))) if brief else page


def error_groups(jobs: Sequence[Job], kind: str | None, limit: int, most: int) -> ErrorGroups:
    dead = [(job.finished_at, job) for job in jobs if job.state is State.DEAD and job.finished_at]
    dead.sort(key=lambda each: each[0], reverse=True)
    most = max(most, 1)
    by_error: dict[tuple[str, str], list[Job]] = {}
    chosen = [job for _, job in dead[:most] if kind in (None, job.kind)]
    for job in sorted(chosen, key=lambda job: job.id):
        by_error.setdefault((_fingerprint(job), job.kind), []).append(job)
    groups = [_group(*names, members) for names, members in by_error.items()]
    groups.sort(key=lambda group: (-group.count, group.kind, group.fingerprint))
    searched_to = dead[most][0] if len(dead) > most else None
    return ErrorGroups(groups=tuple(groups[: max(limit, 1)]), searched_to=searched_to)


def counts(jobs: Sequence[Job]) -> list[QueueCount]:
    counted = Counter((job.queue, job.state) for job in jobs)
    oldest: dict[tuple[str, State], datetime] = {}
    for job in jobs:
        if job.state in WAITING:
            place = (job.queue, job.state)
            oldest[place] = min(job.due_at, oldest.get(place, job.due_at))
    return [
        QueueCount(queue=queue, state=state, count=count, oldest=oldest.get((queue, state)))
        for (queue, state), count in sorted(counted.items())
    ]


def standing(jobs: Sequence[Job], own: Job, now: datetime, limit: int) -> Standing:
    others = [job for job in jobs if job.queue == own.queue]
    # The sort is stable: among jobs that were due together, arrival decides.
    waiting = [job for job in others if job.state is State.PENDING or job is own]
    ahead = sorted(waiting, key=_urgency).index(own)
    span = min(max(now - own.due_at, timedelta(0)), Standing().span)
    ended = [job for job in others if job.finished_at and now - job.finished_at < span]
    starts = [job.started_at for job in ended if job.started_at is not None]
    span = min(span, now - min(starts, default=now - span))
    lane = [job for job in waiting if job.lane == own.lane and job.state is State.PENDING]
    head = min(lane, key=lambda job: job.due_at).id if lane else None
    return Standing(ahead=min(ahead, limit), ended=len(ended), span=span, head=head)


def is_prunable(job: Job, retention: Retention, now: datetime) -> bool:
    """Return whether a job finished longer ago than such jobs are kept."""
    if job.state not in FINISHED or job.finished_at is None:
        return False
    if job.state is State.DEAD and job.saga is Saga.UNDOING:
        return False  # A person has yet to handle the steps that could not be undone.
    kept = retention.dead if job.state is State.DEAD else retention.finished
    return kept is not None and now - job.finished_at > kept


def _urgency(job: Job) -> float:
    return job.due_at.timestamp() - job.priority * AGING.total_seconds()


def _fingerprint(job: Job) -> str:
    return "" if job.error is None else job.error.fingerprint


def _group(fingerprint: str, kind: str, jobs: Sequence[Job]) -> ErrorGroup:
    times = [job.finished_at for job in jobs if job.finished_at is not None]
    return ErrorGroup(
        fingerprint=fingerprint,
        kind=kind,
        count=len(jobs),
        first_seen=min(times),
        last_seen=max(times),
        newest=jobs[-1].id,
        error=jobs[-1].error,
        reason=jobs[-1].reason,
    )
