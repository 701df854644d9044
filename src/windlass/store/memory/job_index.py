"""Owns the jobs of the memory store, and the order of those that wait.

Heaps order waiting jobs; an entry whose job has moved on is dropped when it reaches the top, so
that nothing is ever searched for.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from datetime import datetime, timedelta
from heapq import heappop, heappush
from uuid import UUID

from msgspec.structs import replace

from windlass.core.claims.lanes import Queues
from windlass.core.jobs.job import Job, Lane
from windlass.core.jobs.moves import is_timed
from windlass.core.jobs.states import FINISHED, WAITING, State
from windlass.core.schedules.clock_step import SPANS, Places, enqueued_before

_Place = tuple[datetime, int, UUID]
_MICROSECOND = timedelta(microseconds=1)
MAX_FINISHED = 10_000
"""Number of finished jobs that are kept: their retention must not fill the process's memory."""


class JobIndex:
    """All jobs by id; the heads of lanes, and the job that is due next."""

    def __init__(self, kept: int | None = MAX_FINISHED) -> None:
        self._kept = kept
        self._jobs: dict[UUID, Job] = {}
        self._arrival: dict[UUID, int] = {}
        self._arrivals = 0
        self._states: Counter[State] = Counter()
        self._lanes: defaultdict[Lane, list[_Place]] = defaultdict(list)
        self._due: list[_Place] = []
        self._parked: defaultdict[str, dict[UUID, None]] = defaultdict(dict)
        self._finished: deque[UUID] = deque()

    def __contains__(self, job_id: UUID) -> bool:
        return job_id in self._jobs

    def __iter__(self) -> Iterator[Job]:
        """Iterate over all jobs in order of arrival."""
        return iter(list(self._jobs.values()))

    @property
    def waiting(self) -> int:
        """How many jobs wait, due or not."""
        return sum(self._states[state] for state in WAITING)

    def get(self, job_id: UUID) -> Job | None:
        return self._jobs.get(job_id)

    def held(self, job_id: UUID, token: int) -> Job | None:
        """Return a job if it is under this fence."""
        job = self._jobs.get(job_id)
        return job if job is not None and job.token == token else None

    def put(self, job: Job) -> None:
        """Store a job, and its place among those that wait."""
        before = self._jobs.get(job.id)
        if before is None:
            self._arrivals += 1
            self._arrival[job.id] = self._arrivals
        else:
            self._states[before.state] -= 1
            self._unpark(before)
        self._states[job.state] += 1
        self._jobs[job.id] = job
        if job.waiting_for is not None and job.state is State.SCHEDULED:
            self._parked[job.waiting_for][job.id] = None
        if before is not None and _waits_alike(before, job):
            return  # Its place is the same.
        place = (job.due_at, self._arrival[job.id], job.id)
        if job.state is State.PENDING:
            heappush(self._lanes[job.lane], place)
        elif job.state is State.SCHEDULED and is_timed(job.waiting_for):
            heappush(self._due, place)
        elif job.state in FINISHED and job.state is not State.DEAD:
            self._remember(job)

    def forget(self, job: Job) -> None:
        self._states[job.state] -= 1
        self._unpark(job)
        del self._jobs[job.id], self._arrival[job.id]

    def heads(self, queues: Queues = None) -> list[Job]:
        """Return the first pending job of every lane, or of every lane of some queues."""
        lanes = [lane for lane in self._lanes if queues is None or lane.queue in queues]
        firsts = [self.first(lane) for lane in lanes]
        return [job for job in firsts if job is not None]

    def first(self, lane: Lane) -> Job | None:
        """Return the first pending job of a lane, dropping what has moved on."""
        heap = self._lanes[lane]
        while heap:
            job = self._at(heap[0], State.PENDING)
            if job is not None and job.lane == lane:
                return job
            heappop(heap)
        del self._lanes[lane]
        return None

    def first_due(self) -> Job | None:
        """Return the scheduled job that is due first; jobs parked without a time do not count."""
        while self._due:
            job = self._at(self._due[0], State.SCHEDULED)
            if job is not None and is_timed(job.waiting_for):
                return job
            heappop(self._due)
        return None

    def recalled(self, places: Places) -> list[Job]:
        """Return the jobs that a clock set back has left behind later ones, in their new places."""
        lanes: dict[Lane, list[tuple[int, datetime, Job]]] = defaultdict(list)
        for job in self:
            if job.state is State.PENDING and job.due_at > places.begin:
                lanes[job.lane].append((self._arrival[job.id], job.due_at, job))
        late = [job for each in lanes.values() for job in enqueued_before(each, places.ahead)]
        late.sort(key=lambda job: (job.due_at, self._arrival[job.id]))
        pending = [
            replace(job, due_at=places.begin - _MICROSECOND * left)
            for left, job in zip(range(len(late), 0, -1), late, strict=True)
        ]
        if not places.by:
            return pending
        return pending + [
            replace(job, due_at=places.retry(job.due_at))
            for job in self
            if job.state is State.SCHEDULED
            and job.waiting_for is None
            and job.reason in SPANS
            and job.due_at > places.retries_from
        ]

    def is_ahead(self, lane: Lane, moment: datetime) -> bool:
        """Return whether a pending job of a lane is placed after a moment."""
        places = self._lanes.get(lane, ())
        return any(place[0] > moment and self._at(place, State.PENDING) for place in places)

    def parked(self, waiting_for: str) -> list[Job]:
        """Return the jobs that are parked for an event or a job."""
        return [self._jobs[job_id] for job_id in self._parked.get(waiting_for, ())]

    def _at(self, place: _Place, state: State) -> Job | None:
        due_at, _, job_id = place
        job = self._jobs.get(job_id)
        return job if job is not None and job.state is state and job.due_at == due_at else None

    def _unpark(self, job: Job) -> None:
        waiters = self._parked.get(job.waiting_for or "", {})
        waiters.pop(job.id, None)
        if job.waiting_for is not None and not waiters:
            self._parked.pop(job.waiting_for, None)

    def _remember(self, job: Job) -> None:
        self._finished.append(job.id)
        if self._kept is not None and len(self._finished) > self._kept:
            oldest = self._jobs.get(self._finished.popleft())
            if oldest is not None and oldest.state in FINISHED:
                self.forget(oldest)


def _waits_alike(before: Job, after: Job) -> bool:
    return (
        after.state in WAITING
        and (before.state, before.due_at, before.waiting_for, before.lane)
        == (after.state, after.due_at, after.waiting_for, after.lane)
    )  # fmt: skip
