"""Owns a process's cache of the lanes between two sweeps: which have jobs, and from which position.

The floor is a hint, the sweep is the truth. A claim begins at the last position that was claimed in
the lane, so that it never walks over deleted rows, however many there are. Jobs below the floor
(late commits, released, rescued and promoted jobs, a clock that was set back) are found by the next
sweep, which has no floors; a sweep is due again after twenty times what the last one took.

Where many lanes are known, a wake-up names its queues, and they are looked at without a sweep of
all lanes. Such a look is due again after twenty times what the last one took, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from msgspec.structs import replace

from windlass.core.claims.lanes import Floor, Head, Queues, Sweep
from windlass.core.jobs.job import Job, Lane

_SWEEP_COST_FACTOR = 20
_MAX_SWEEP_SECONDS = 10.0
_MIN_SWEEP_SECONDS = 0.005
_MAX_FLOORS = 10_000
_MAX_WOKEN_LANES = 100
_MAX_CALLED_QUEUES = 100
_CALLED_SECONDS = 2.0
"""Seconds for which a queue is looked at again and again, after it was named by a wake-up."""
_MAX_UNUSED_SECONDS = 60.0
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
    """The lanes of the last sweep, less what was claimed since.

    With `queues`, lanes of other queues are left out.
    """

    def __init__(self, queues: Queues = None) -> None:
        self.queues = queues
        self._heads: dict[Lane, Head] = {}
        self._floors: dict[Lane, Floor] = {}
        self._swept = Sweep(heads=(), next_due=None, now=_NEVER, mark=0)
        self._swept_at = 0.0
        self._due = 0.0
        self._stale = True
        self._called: dict[str, float] = {}
        """When queues were last named by a wake-up."""
        self._unseen: dict[str, int] = {}
        """Queues that were named, and have not been looked at since, by the number of the call."""
        self._calls = 0
        self._look_due = 0.0
        self.unnamed = 0
        """Counts wake-ups after which all lanes have to be looked at."""

    def swept(
        self, heads: Iterable[tuple[Lane, Floor]], sweep: Sweep, *, cost: float, now: float
    ) -> None:
        """Store a sweep that took the server this long. Its heads are the new floors."""
        self._heads = {}
        self._believe(heads)
        self._swept = sweep
        self._swept_at = now
        self._due = now + min(
            max(cost * _SWEEP_COST_FACTOR, _MIN_SWEEP_SECONDS), _MAX_SWEEP_SECONDS
        )
        self._stale = bool(self._unseen)  # Their jobs may have come after the sweep's snapshot.

    @property
    def are_believed_empty(self) -> bool:
        """Whether no lane is known that may have jobs."""
        return not self._heads

    def is_due(self, now: float) -> bool:
        """Return whether a sweep is due."""
        return now >= self._due

    def due_in(self, now: float) -> float | None:
        """Return how long the next sweep or look may wait; None if it could find nothing new."""
        if not self._stale:
            return None
        due = min(self._due, self._look_due) if self._unseen else self._due
        return max(due - now, 0.0)

    def believed(self, mark: int, now: float) -> Sweep:
        """Return the last sweep, less the lanes that were found empty since."""
        passed = timedelta(seconds=now - self._swept_at)
        return Sweep(
            heads=tuple(self._heads.values()),
            next_due=self._swept.next_due,
            now=self._swept.now + passed,
            mark=mark,
        )

    def woken(self, now: float, queues: Collection[str] = ()) -> None:
        """Assume that the known lanes may have jobs again, if they are few.

        Then a claim finds out, and the sweep comes after it, so that the caller need not wait for
        both. If many lanes are known, the queues that were named are to be looked at.
        """
        if self._floors and len(self._floors) <= _MAX_WOKEN_LANES:
            known = {lane: _head(lane, floor) for lane, floor in self._floors.items()}
            self._heads = known | self._heads
            self._due = max(self._due, now + _MIN_SWEEP_SECONDS)
            self.unnamed += 1
        elif not self._call(queues, now):
            self.unnamed += 1
        self._stale = True

    def _call(self, queues: Collection[str], now: float) -> bool:
        """Note which queues were named; return False if all lanes have to be looked at."""
        named = {queue for queue in queues if self.queues is None or queue in self.queues}
        called = {queue: at for queue, at in self._called.items() if _is_recent(at, now)}
        called |= dict.fromkeys(named, now)
        if not queues or len(called) > _MAX_CALLED_QUEUES:
            return False
        self._called = called
        self._look_at(named)
        return True

    def _look_at(self, queues: Iterable[str]) -> None:
        self._calls += 1
        self._unseen |= dict.fromkeys(queues, self._calls)

    def call_again(self, now: float) -> None:
        """Assume that queues which were named lately have jobs again: wake-ups are turned off."""
        self._look_at(queue for queue, at in self._called.items() if _is_recent(at, now))

    def unseen(self, now: float) -> dict[str, int]:
        """Return the queues that are to be looked at now, to be passed to `looked`."""
        return {} if now < self._look_due else dict(self._unseen)

    def looked(
        self,
        unseen: Mapping[str, int],
        heads: Iterable[tuple[Lane, Floor]],
        *,
        cost: float,
        now: float,
    ) -> None:
        """Add the heads of some queues, which it took the server this long to find.

        Until now they count as unseen for others; and so does one that was named again meanwhile.
        """
        for queue, call in unseen.items():
            if self._unseen.get(queue) == call:
                del self._unseen[queue]
        self._believe(heads)
        self._look_due = now + min(cost * _SWEEP_COST_FACTOR, _MAX_SWEEP_SECONDS)
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
            if answer.last is not None and self._has(answer.lane):
                self._floors[answer.lane] = answer.last
                self._heads[answer.lane] = _head(answer.lane, answer.last)
            if answer.dry:
                self._heads.pop(answer.lane, None)

    def _believe(self, heads: Iterable[tuple[Lane, Floor]]) -> None:
        places = dict(heads)
        self._heads |= {lane: _head(lane, floor) for lane, floor in places.items()}
        if len(self._floors) > _MAX_FLOORS:
            self._floors.clear()
        self._floors |= places

    def _has(self, lane: Lane) -> bool:
        return self.queues is None or lane.queue in self.queues


class LaneCaches:
    """The caches of an event loop, one for each set of queues that is asked for there.

    A worker that serves some queues has one, and those who look at all queues another.
    """

    def __init__(self) -> None:
        self._caches: dict[Queues, LaneCache] = {}
        self._used_at: dict[Queues, float] = {}

    def __iter__(self) -> Iterator[LaneCache]:
        return iter(list(self._caches.values()))

    def of(self, queues: Queues, now: float) -> LaneCache:
        """Return the cache of some queues; caches that were not used for a minute are dropped."""
        self._used_at[queues] = now
        if len(self._used_at) > 1:
            for each, used_at in list(self._used_at.items()):
                if now - used_at > _MAX_UNUSED_SECONDS:
                    del self._used_at[each], self._caches[each]
        return self._caches.setdefault(queues, LaneCache(queues))

    def woken(self, now: float, queues: Collection[str] = ()) -> None:
        """Note that there are new jobs in these queues."""
        for cache in self:
            cache.woken(now, queues)

    def call_again(self, now: float) -> None:
        """Assume that there are more jobs in queues that were named lately."""
        for cache in self:
            cache.call_again(now)

    def doubt(self) -> None:
        """Make sweeps due: jobs may have changed without a notification."""
        for cache in self:
            cache.doubt()

    def promoted(self) -> None:
        """Assume that no scheduled job is due any more."""
        for cache in self:
            cache.promoted()

    def claimed(self, answers: Iterable[AskResult]) -> None:
        """Note what was claimed."""
        answers = tuple(answers)
        for cache in self:
            cache.claimed(answers)


def _is_recent(called_at: float, now: float) -> bool:
    return now - called_at < _CALLED_SECONDS


def _head(lane: Lane, floor: Floor) -> Head:
    return Head(lane=lane, position=floor.due_at, floor=floor)
