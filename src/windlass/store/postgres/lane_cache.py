"""Owns a process's cache of the lanes between two sweeps: which have jobs, and from which position.

The floor is a hint, the sweep is the truth. A claim begins at the last position that was claimed in
the lane, so that it never walks over deleted rows, however many there are. Jobs below the floor
(late commits, released, rescued and promoted jobs, a clock that was set back) are found by the next
sweep, which has no floors; a sweep is due again after twenty times what the last one took.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from msgspec.structs import replace

from windlass.core.claims.lanes import Floor, Head, Sweep
from windlass.core.jobs.job import Job, Lane

_SWEEP_COST_FACTOR = 20
_MAX_SWEEP_SECONDS = 10.0
_MIN_SWEEP_SECONDS = 0.005
_MAX_FLOORS = 10_000
_MAX_WOKEN_LANES = 100
_NEVER = datetime.min.replace(tzinfo=UTC)


class AskResult(NamedTuple):
    """The jobs that an ask got, the position of the last one, and whether it wanted more.

    Unreadable jobs were claimed, too, but cannot be run.
    """

    lane: Lane
    jobs: list[Job]
    last: Floor | None
    dry: bool
    unreadable: list[UUID]


class LaneCache:
    """The lanes of the last sweep, less what was claimed since."""

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
        """Store a sweep that took the server this long. Its heads are the new floors."""
        places = dict(heads)
        self._heads = {lane: _head(lane, floor) for lane, floor in places.items()}
        if len(self._floors) > _MAX_FLOORS:
            self._floors.clear()
        self._floors |= places
        self._swept = sweep
        self._swept_at = now
        self._due = now + min(
            max(cost * _SWEEP_COST_FACTOR, _MIN_SWEEP_SECONDS), _MAX_SWEEP_SECONDS
        )
        self._stale = False

    @property
    def are_believed_empty(self) -> bool:
        """Whether no lane is known that may have jobs."""
        return not self._heads

    def is_due(self, now: float) -> bool:
        """Return whether a sweep is due."""
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
        """Assume that the known lanes may have jobs again, if they are few.

        Then a claim finds out, and the sweep comes after it, so that the caller need not wait for
        both.
        """
        if self._floors and len(self._floors) <= _MAX_WOKEN_LANES:
            known = {lane: _head(lane, floor) for lane, floor in self._floors.items()}
            self._heads = known | self._heads
            self._due = max(self._due, now + _MIN_SWEEP_SECONDS)
        self._stale = True

    def doubt(self) -> None:
        """Make a sweep due: jobs may have changed without a notification."""
        self._stale = True
        self._due = 0.0

    def postpone(self, until: float) -> None:
        """Postpone the next sweep, since one has failed."""
        self._due = max(self._due, until)

    def promoted(self) -> None:
        """Assume that no scheduled job is due any more; the next sweep finds the promoted ones."""
        self._swept = replace(self._swept, next_due=None)
        self._stale = True

    def claimed(self, answers: Iterable[AskResult]) -> None:
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
