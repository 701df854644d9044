"""Owns which unfinished jobs `windlass check` looks at: all of them, or a sample.

A payload's form depends on the release that enqueued it, and ids tell when that was. So a sample
has the newest jobs, jobs from evenly spaced points in time, and some of every kind that is pending.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from uuid import UUID

from msgspec.structs import replace

from windlass.core.jobs.ids import uuid_of
from windlass.core.jobs.job import Job
from windlass.core.jobs.queries import JobFilter
from windlass.core.jobs.states import LIVE, State
from windlass.core.search.scan import Budget
from windlass.store import StoreQueries

LIMIT = 10_000
"""How many jobs are looked at, unless another number is given."""
_UNFINISHED = JobFilter(states=tuple(state for state in State if state in LIVE))
_CHUNK = 500
_POINTS = 50
_OF_A_KIND = 20
_BUDGET = Budget(rows=100_000, seconds=1.0)
_MAX_EMPTY_PAGES = 30
"""How often a search that found nothing within its budget is continued."""


class Sample:
    """The unfinished jobs of a store, at most about `limit` of them; None: all.

    `is_complete` is known once the jobs were read.
    """

    def __init__(self, store: StoreQueries, limit: int | None) -> None:
        self._store = store
        self._limit = limit
        self._seen: set[UUID] = set()
        self.kinds: set[str] = set()
        """The kinds of the jobs that were read."""
        self.is_complete = False

    async def jobs(self) -> AsyncIterator[Job]:
        """Yield the newest jobs; if that is only a part, also some from other points in time."""
        newest = None if self._limit is None else max(1, self._limit // 2)
        last: UUID | None = None
        async for job in self._newest(newest):
            last = job.id
            yield job
        if self.is_complete or last is None or self._limit is None:
            return
        async for job in self._spread(last, self._limit - len(self._seen)):
            yield job

    async def of_kinds(self, kinds: Collection[str]) -> AsyncIterator[Job]:
        """Yield some jobs of each of these kinds."""
        for kind in sorted(kinds):
            which = replace(_UNFINISHED, kind=kind)
            page = await self._store.find(which, limit=_OF_A_KIND, budget=_BUDGET)
            for job in self._unseen(page.jobs):
                yield job

    async def _newest(self, count: int | None) -> AsyncIterator[Job]:
        after: UUID | None = None
        empty = 0
        while count is None or len(self._seen) < count:
            room = _CHUNK if count is None else min(_CHUNK, count - len(self._seen))
            page = await self._store.find(_UNFINISHED, limit=room, after=after, budget=_BUDGET)
            for job in self._unseen(page.jobs):
                yield job
            after = page.after
            if after is None:
                self.is_complete = True
                return
            empty = 0 if page.jobs else empty + 1
            if empty == _MAX_EMPTY_PAGES and count is not None:
                return

    async def _spread(self, last: UUID, count: int) -> AsyncIterator[Job]:
        oldest = await self._store.find(_UNFINISHED, limit=1, oldest_first=True, budget=_BUDGET)
        if not oldest.jobs or count < 1:
            return
        first = oldest.jobs[0].id.int
        points = min(_POINTS, count)
        stride = max(1, (last.int - first) // points)
        for point in range(points):
            start = first + point * stride
            end = last.int - 1 if point == points - 1 else start + stride - 1
            which = replace(_UNFINISHED, first=uuid_of(start), last=uuid_of(max(start, end)))
            page = await self._store.find(
                which, limit=max(1, count // points), oldest_first=True, budget=_BUDGET
            )
            for job in self._unseen(page.jobs):
                yield job

    def _unseen(self, jobs: Collection[Job]) -> list[Job]:
        new = [job for job in jobs if job.id not in self._seen]
        self._seen.update(job.id for job in new)
        self.kinds.update(job.kind for job in new)
        return new
