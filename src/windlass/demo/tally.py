"""Owns the demo's tally: the ends of the jobs of each kind, and whether they add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from statistics import median

from windlass.core.jobs.job import Job
from windlass.core.jobs.states import State


@dataclass(kw_only=True)
class Tally:
    """The ends of the jobs of one kind.

    Two sums must come out: every job enqueued has an end, and every outcome has a run. There may be
    more runs than outcomes: jobs that were claimed and could not begin at once were given back.
    """

    kind: str
    enqueued: int
    found: int = 0
    runs: int = 0
    completed: int = 0
    retried: int = 0
    snoozed: int = 0
    dead: int = 0
    durations: list[timedelta] = field(default_factory=list)

    def add(self, job: Job) -> None:
        outcomes = Counter(attempt.outcome for attempt in job.history)
        died = job.state is State.DEAD
        self.found += 1
        self.runs += job.attempt
        self.completed += job.state is State.COMPLETED
        self.dead += died
        self.snoozed += outcomes["snoozed"]
        self.retried += len(job.history) - outcomes["snoozed"] - died
        if job.state is State.COMPLETED and job.started_at and job.finished_at:
            self.durations.append(job.finished_at - job.started_at)

    @property
    def typical(self) -> timedelta | None:
        """The median duration of the runs that completed a job."""
        if not self.durations:
            return None
        return timedelta(seconds=median(each.total_seconds() for each in self.durations))

    def complaints(self) -> list[str]:
        """Return the sums that do not add up."""
        problems = []
        if not self.enqueued == self.found == self.completed + self.dead:
            problems.append(
                f"{self.kind}: {self.enqueued} enqueued, {self.found} found, "
                f"{self.completed} completed + {self.dead} dead"
            )
        outcomes = self.completed + self.retried + self.snoozed + self.dead
        if self.runs < outcomes:
            problems.append(f"{self.kind}: {self.runs} runs, {outcomes} outcomes")
        return problems


def tally(enqueued: Mapping[str, int], jobs: Iterable[Job]) -> list[Tally]:
    """Make the tally, by kind."""
    books = {kind: Tally(kind=kind, enqueued=count) for kind, count in enqueued.items()}
    for job in jobs:
        books.setdefault(job.kind, Tally(kind=job.kind, enqueued=0)).add(job)
    return sorted(books.values(), key=lambda each: -each.enqueued)


def complaints(books: Iterable[Tally], *, poison: str) -> list[str]:
    """Return what does not add up, of any kind; only the failing job may die, and it must."""
    problems = []
    for book in books:
        problems += book.complaints()
        expected = book.enqueued if book.kind == poison else 0
        if book.dead != expected:
            problems.append(f"{book.kind}: {book.dead} dead instead of {expected}")
    return problems
