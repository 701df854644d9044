"""Owns what a process believes about the lanes between two sweeps: which have jobs, and from where.

The floor is a hint, the sweep is the truth. A claim begins its walk at the last position that was
claimed there, so that it never passes what was deleted before, however much that is. What lies
below (late commits, released, rescued and promoted jobs, a clock that was set back) is found by the
next sweep, which has no floors; it is due again after twenty times what it took.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from msgspec.structs import replace

from windlass.core.job import Floor, Head, Job, Lane, Sweep

_SHARE = 20
_LONGEST = 10.0
_SHORTEST = 0.005
_REMEMBERED = 10_000
_ASKED = 100
_NEVER = datetime.min.replace(tzinfo=UTC)


class Met(NamedTuple):
    """What an ask got: its jobs, the place of the last one, and whether it wanted more.

    What is unreadable was claimed, too, but is no job that could be run.
    """

    lane: Lane
    jobs: list[Job]
    last: Floor | None
    dry: bool
    unreadable: list[UUID]


class Lanes:
    """The lanes as they were at the last sweep, less what was claimed since."""

    def __init__(self) -> None:
        self._heads: dict[Lane, Head] = {}
        self._floors: dict[Lane, Floor] = {}
        self._swept = Sweep(heads=(), next_due=None, now=_NEVER, mark=0)
        self._swept_at = 0.0
        self._due = 0.0
        self._stale = True

    def swept(
        self, heads: Iterable[tuple[Lane, Floor]], sweep: Sweep, *, cost: float, now: float
    ) -> None:
        """Take in a sweep that took the server so long. Its heads are the floors now."""
        places = dict(heads)
        self._heads = {lane: _head(lane, floor) for lane, floor in places.items()}
        if len(self._floors) > _REMEMBERED:
            self._floors.clear()
        self._floors |= places
        self._swept = sweep
        self._swept_at = now
        self._due = now + min(max(cost * _SHARE, _SHORTEST), _LONGEST)
        self._stale = False

    @property
    def are_believed_empty(self) -> bool:
        """Whether no lane is known that may have jobs."""
        return not self._heads

    def is_due(self, now: float) -> bool:
        """Say whether the truth should be looked at again."""
        return now >= self._due

    def due_in(self, now: float) -> float | None:
        """Return how long the next sweep may wait, or None if it could find nothing new."""
        return max(self._due - now, 0.0) if self._stale else None

    def believed(self, mark: int, now: float) -> Sweep:
        """Return the last sweep, less the lanes that were found empty since."""
        passed = timedelta(seconds=now - self._swept_at)
        return Sweep(
            heads=tuple(self._heads.values()),
            next_due=self._swept.next_due,
            now=self._swept.now + passed,
            mark=mark,
        )

    def woken(self, now: float) -> None:
        """Believe that the lanes that are known may have jobs again, if they are few.

        Then a claim finds out, and the sweep comes after it: nobody shall wait for both.
        """
        if self._floors and len(self._floors) <= _ASKED:
            known = {lane: _head(lane, floor) for lane, floor in self._floors.items()}
            self._heads = known | self._heads
            self._due = max(self._due, now + _SHORTEST)
        self._stale = True

    def doubt(self) -> None:
        """Let the next look be a sweep: something may have happened that nobody told us of."""
        self._stale = True
        self._due = 0.0

    def postpone(self, until: float) -> None:
        """Let the next sweep wait, since one has failed."""
        self._due = max(self._due, until)

    def promoted(self) -> None:
        """Believe that nothing is due any more; what became pending is found by the next sweep."""
        self._swept = replace(self._swept, next_due=None)
        self._stale = True

    def claimed(self, answers: Iterable[Met]) -> None:
        """Raise the floors to what was claimed; a lane that gave less than asked is empty now."""
        self._stale = True
        for answer in answers:
            if answer.last is not None:
                self._floors[answer.lane] = answer.last
                self._heads[answer.lane] = _head(answer.lane, answer.last)
            if answer.dry:
                self._heads.pop(answer.lane, None)


def _head(lane: Lane, floor: Floor) -> Head:
    return Head(lane=lane, position=floor.due_at, floor=floor)
