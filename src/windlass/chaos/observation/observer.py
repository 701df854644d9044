"""Owns the view on the store during a storm, and the collection of its records after it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress

import msgspec

from windlass.app import Windlass
from windlass.chaos.laws.history import Change, Record
from windlass.chaos.processes import is_alive
from windlass.chaos.terms import Receipt
from windlass.core.jobs.job import SCHEDULE, TICK, Job
from windlass.core.jobs.queries import JobFilter
from windlass.core.jobs.states import FINISHED, State

_NEWEST = 300
_PAGE = 500
_ALL = 1_000_000_000
_LOST = ("crashed", "suspected", "lost")
"""The beginnings of outcomes of attempts that ended with their process or their lease."""


class Observer:
    """Looks at a store beside the workers, by a connection that no fault touches."""

    def __init__(self, app: Windlass) -> None:
        self._app = app
        self._seen: dict[str, tuple[str, float]] = {}
        """The outcome of each job, and when it was first seen."""
        self.watched = 0
        """How many outcomes were seen during the storm, and compared with those in the end."""
        self.changes: list[Change] = []

    async def counts(self) -> Counter[State]:
        """Count the jobs by state."""
        found: Counter[State] = Counter()
        for each in await self._app.store.counts(most=_ALL):
            found[each.state] += each.count
        return found

    async def watch(self) -> None:
        """Look at the newest outcomes, and remember them: none may change later."""
        which = JobFilter(states=tuple(FINISHED))
        page = await self._app.store.find(which, limit=_NEWEST)
        for job in page.jobs:
            self._compare(job)

    async def records(self) -> list[Record]:
        """Return every job of the store, and compare those that were seen before."""
        found: list[Record] = []
        self.watched = len(self._seen)
        async for job in self._jobs():
            self._compare(job)
            found.append(record_of(job))
        return found

    async def living_workers(self) -> list[str]:
        """Return the workers that hold a lease."""
        return [each.info.id for each in await self._app.store.workers() if each.alive]

    async def serving(self) -> set[int]:
        """Return the processes of the workers that hold a lease and live."""
        workers = [each for each in await self._app.store.workers() if each.alive]
        return {each.info.pid for each in workers if is_alive(each.info.pid)}

    async def _jobs(self) -> AsyncIterator[Job]:
        after = None
        while True:
            page = await self._app.store.find(JobFilter(), limit=_PAGE, after=after)
            for job in page.jobs:
                yield job
            after = page.after
            if after is None:
                return

    def _compare(self, job: Job) -> None:
        name = str(job.id)
        result = (job.result or b"").decode(errors="replace")
        outcome = f"{job.state} in attempt {job.attempt} {result}".strip()
        before, seen_at = self._seen.get(name, ("", 0.0))
        if not before:
            if job.state in FINISHED:
                self._seen[name] = (outcome, time.monotonic())
        elif before != outcome:
            self.changes.append(Change(job=name, before=before, after=outcome, seen_at=seen_at))


def record_of(job: Job) -> Record:
    """Return what the laws need of a job."""
    receipt: Receipt | None = None
    with suppress(msgspec.MsgspecError):
        receipt = msgspec.json.decode(job.result or b"", type=Receipt)
    return Record(
        job=str(job.id),
        kind=job.kind,
        state=job.state.value,
        attempt=job.attempt,
        failures=job.failures,
        crashes=job.crashes,
        reason=job.reason or "",
        result_attempt=None if receipt is None else receipt.attempt,
        result_mark="" if receipt is None else receipt.mark,
        lost_runs=sum(attempt.outcome.startswith(_LOST) for attempt in job.history),
        schedule=job.headers.get(SCHEDULE, ""),
        tick=job.headers.get(TICK, ""),
    )
