"""Owns how a bounded search goes on: slice by slice, until its page is full or its budget is spent.

A store looks at jobs in the order of their ids. After each slice it knows how far it has come, so
that a search which ends early can say so, and be continued there.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct

from windlass.core.jobs.ids import uuid_of
from windlass.core.jobs.job import Job
from windlass.core.jobs.queries import Page

_FIRST_SLICE = 250
_LARGEST_SLICE = 16_000


class Budget(Struct, frozen=True, kw_only=True):
    """How many jobs a search looks at, at most, and for about how long."""

    rows: int = 100_000
    seconds: float = 1.0

    def __post_init__(self) -> None:
        if self.rows < 1 or not self.seconds > 0:
            raise ValueError(
                f"a budget must have rows of at least 1 and seconds above 0, got {self}; leave it "
                "out for the default"
            )


class Scan:
    """One search for a page; `now` is any clock that runs evenly, in seconds."""

    def __init__(
        self,
        ids: tuple[UUID, UUID],
        *,
        limit: int,
        budget: Budget | None,
        oldest_first: bool,
        now: float,
    ) -> None:
        self.first, self.last = ids
        self._limit = max(limit, 1)
        self._oldest_first = oldest_first
        self._rows_left = None if budget is None else budget.rows
        self._deadline = None if budget is None else now + budget.seconds
        self._slice = max(_FIRST_SLICE, self._limit + 1)
        self._jobs: list[Job] = []
        self._edge: UUID | None = None
        self._is_over = self.first > self.last

    @property
    def is_over(self) -> bool:
        """Whether the page is ready."""
        return self._is_over

    @property
    def wanted(self) -> int:
        """How many more jobs are wanted: one more than fits, to know whether there are more."""
        return self._limit + 1 - len(self._jobs)

    @property
    def rows(self) -> int | None:
        """How many jobs are looked at in the next slice; None: all that are left."""
        return None if self._rows_left is None else min(self._slice, self._rows_left)

    def add(self, jobs: Sequence[Job], edge: UUID | None, *, looked_at: int, now: float) -> None:
        """Add the jobs that were found in a slice, and the last id of those that were looked at.

        None instead of that id: nothing is left.
        """
        self._jobs += jobs[: self.wanted]
        if edge is not None and edge == (self.last if self._oldest_first else self.first):
            edge = None
        self._edge = edge
        self._slice = min(2 * self._slice, max(_LARGEST_SLICE, self._limit + 1))
        if self._rows_left is not None:
            self._rows_left -= looked_at
        if edge is None or self.wanted <= 0 or self._is_spent(now):
            self._is_over = True
        elif self._oldest_first:
            self.first = uuid_of(edge.int + 1)
        else:
            self.last = uuid_of(edge.int - 1)

    def _is_spent(self, now: float) -> bool:
        if self._rows_left is None or self._deadline is None:
            return False
        return self._rows_left <= 0 or now >= self._deadline

    def page(self) -> Page:
        """Return what was found, and where to go on."""
        jobs = tuple(self._jobs[: self._limit])
        if len(self._jobs) > self._limit:
            return Page(jobs=jobs, after=jobs[-1].id)
        return Page(jobs=jobs, after=self._edge, searched_to=self._edge)
