"""Owns looking at several spaces at once: each is asked, and the answers are put together."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from msgspec.structs import replace

from windlass.core.claims.lanes import Queues, Sweep
from windlass.core.errors import ConfigError
from windlass.core.jobs.job import Job
from windlass.core.jobs.queries import (
    MAX_GROUPED,
    ErrorGroup,
    ErrorGroups,
    Finding,
    JobFilter,
    Page,
)
from windlass.core.jobs.streams import Position, StreamPage
from windlass.core.records import Json, RecordPage, Ringing
from windlass.core.search.scan import Budget
from windlass.core.stats.depths import MAX_COUNTED, Depths, QueueCount, Standing
from windlass.core.workers import WorkerRecord
from windlass.store.non_transactional import NonTransactional
from windlass.store.protocol import Store

T = TypeVar("T")


class SpaceQueries(NonTransactional):
    """Looks at the chosen space, or at all of them; jobs are found by their ids in any space."""

    def __init__(self, spaces: Mapping[str, Store], chosen: str | None) -> None:
        self._spaces = dict(spaces)
        self._chosen = chosen
        looked_at = spaces if chosen is None else {chosen: spaces[chosen]}
        self._looked_at = dict(looked_at)

    @property
    def names(self) -> list[str]:
        """The names of the spaces."""
        return list(self._spaces)

    async def _ask(self, question: Callable[[Store], Awaitable[T]]) -> list[T]:
        return list(await asyncio.gather(*map(question, self._looked_at.values())))

    async def _ask_all(self, question: Callable[[Store], Awaitable[T]]) -> list[T]:
        return list(await asyncio.gather(*map(question, self._spaces.values())))

    async def sweep(self, *, fresh: bool = True, queues: Queues = None) -> Sweep:
        sweeps = await self._ask(lambda store: store.sweep(fresh=fresh, queues=queues))
        dues = [sweep.next_due for sweep in sweeps if sweep.next_due is not None]
        return Sweep(
            heads=tuple(head for sweep in sweeps for head in sweep.heads),
            next_due=min(dues, default=None),
            now=sweeps[0].now,
            mark=sweeps[0].mark,
        )

    async def get(self, job: UUID) -> Job | None:
        return (await self.get_many([job])).get(job)

    async def get_many(self, jobs: Sequence[UUID]) -> dict[UUID, Job]:
        return {
            id_: job
            for found in (await self._find_by_id(jobs)).values()
            for id_, job in found.items()
        }

    async def _find_by_id(self, jobs: Sequence[UUID]) -> dict[str, dict[UUID, Job]]:
        """Return the given jobs by space; a space that is away hides no job of the others."""
        answers = await asyncio.gather(
            *(store.get_many(jobs) for store in self._spaces.values()), return_exceptions=True
        )
        found = {
            name: answer
            for name, answer in zip(self._spaces, answers, strict=True)
            if not isinstance(answer, BaseException)
        }
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        if errors and len(set().union(*found.values())) < len(set(jobs)):
            raise errors[0]
        return found

    async def stream_read(self, job: UUID, after: Position, limit: int) -> StreamPage:
        return await (await self.of_job(job)).stream_read(job, after, limit)

    async def done(self, kind: str, key: str) -> Job | None:
        return next(filter(None, await self._ask(lambda store: store.done(kind, key))), None)

    async def find(
        self,
        which: JobFilter,
        *,
        limit: int,
        after: UUID | None = None,
        oldest_first: bool = False,
        brief: bool = False,
        budget: Budget | None = None,
    ) -> Page:
        pages = await self._ask(
            lambda store: store.find(
                which,
                limit=limit,
                after=after,
                oldest_first=oldest_first,
                brief=brief,
                budget=budget,
            )
        )
        return _one_page(pages, limit, oldest_first=oldest_first)

    async def error_groups(
        self, *, kind: str | None = None, limit: int, most: int = MAX_GROUPED
    ) -> ErrorGroups:
        merged: dict[tuple[str, str], ErrorGroup] = {}
        answers = await self._ask(
            lambda store: store.error_groups(kind=kind, limit=limit, most=most)
        )
        for group in (group for groups in answers for group in groups):
            key = group.kind, group.fingerprint
            merged[key] = _both(merged[key], group) if key in merged else group
        largest = sorted(merged.values(), key=lambda group: -group.count)
        ends = [groups.searched_to for groups in answers if groups.searched_to is not None]
        return ErrorGroups(groups=tuple(largest[:limit]), searched_to=max(ends, default=None))

    async def counts(self, *, most: int = MAX_COUNTED) -> list[QueueCount]:
        answers = await self._ask(lambda store: store.counts(most=most))
        return [count for counts in answers for count in counts]

    async def standing(self, job: UUID, *, limit: int) -> Standing:
        return await (await self.of_job(job)).standing(job, limit=limit)

    async def depths(self, most: int) -> Depths:
        depths = await self._ask(lambda store: store.depths(most))
        return Depths(
            counts=tuple(count for each in depths for count in each.counts),
            cut=tuple({state: None for each in depths for state in each.cut}),
        )

    async def arrivals(
        self, since: datetime, until: datetime, most: int
    ) -> Mapping[str, int] | None:
        total: Counter[str] = Counter()
        for counted in await self._ask(lambda store: store.arrivals(since, until, most)):
            if counted is None:
                return None
            total.update(counted)
        return total if total.total() <= most else None

    async def workers(self) -> list[WorkerRecord]:
        known = await self._ask(lambda store: store.workers())
        everybody = [worker for workers in known for worker in workers]
        return sorted(everybody, key=lambda worker: worker.started_at, reverse=True)

    async def held(self, worker: str) -> list[Job]:
        return [job for jobs in await self._ask(lambda store: store.held(worker)) for job in jobs]

    async def records(self, prefix: str, page: RecordPage | None = None) -> Mapping[str, Json]:
        """Return the records of the spaces that are looked at.

        Raises:
            ConfigError: several spaces have a record of the same name, such as their statistics.
        """
        merged: dict[str, Json] = {}
        for known in await self._ask(lambda store: store.records(prefix, page)):
            if twice := sorted(merged.keys() & known.keys()):
                raise self._unchosen(f"{twice[0]!r} is kept by each space for itself")
            merged |= known
        if page is None:
            return merged
        return {name: merged[name] for name in sorted(merged, reverse=True)[: page.limit]}

    async def ringing(self, limit: int) -> Ringing:
        each = await self._ask(lambda store: store.ringing(limit))
        times = [ringing.next for ringing in each if ringing.next is not None]
        records = {name: record for ringing in each for name, record in ringing.records.items()}
        return Ringing(records=records, next=min(times, default=None), now=each[0].now)

    async def findings(self) -> list[Finding]:
        names = list(self._looked_at)
        found = await self._ask(lambda store: store.findings())
        return [
            replace(finding, problem=f"space {name}: {finding.problem}")
            for name, findings in zip(names, found, strict=True)
            for finding in findings
        ]

    async def by_space(self, jobs: Sequence[UUID]) -> dict[Store, list[UUID]]:
        """Return the given jobs by the space that has them."""
        found = (await self._find_by_id(jobs)).items()
        own = {name: [job for job in jobs if job in known] for name, known in found}
        return {self._spaces[name]: ids for name, ids in own.items() if ids}

    async def of_job(self, job: UUID) -> Store:
        """Return the space that has a job; for an unknown one, one that says so."""
        found = await self._find_by_id([job])
        return self._spaces[next((name for name, jobs in found.items() if jobs), self.names[0])]

    def _unchosen(self, why: str) -> ConfigError:
        return ConfigError(
            f"space must be one of {', '.join(self._spaces)} here, got none: {why}; name one "
            "with --space, WINDLASS_SPACE or Windlass(space=...)"
        )


def _one_page(pages: Sequence[Page], limit: int, *, oldest_first: bool) -> Page:
    """Return the jobs up to where every space was looked at: later ones may still be passed."""
    ends = [page.after for page in pages if page.after is not None]
    end = (min if oldest_first else max)(ends, default=None)
    jobs = sorted((job for page in pages for job in page.jobs), key=lambda job: job.id)
    ordered = jobs if oldest_first else jobs[::-1]
    if end is not None:
        ordered = [job for job in ordered if (job.id <= end if oldest_first else job.id >= end)]
    shown = tuple(ordered[:limit])
    if len(shown) < limit:
        return Page(jobs=shown, after=end, searched_to=end)
    return Page(jobs=shown, after=shown[-1].id if end or len(jobs) > limit else None)


def _both(one: ErrorGroup, other: ErrorGroup) -> ErrorGroup:
    newer = max(one, other, key=lambda group: group.last_seen)
    return replace(
        newer,
        count=one.count + other.count,
        first_seen=min(one.first_seen, other.first_seen),
    )
