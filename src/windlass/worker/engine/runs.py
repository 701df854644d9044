"""Owns the runs that have not ended, and how many threads and isolated processes they use."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from uuid import UUID

from windlass.core.claims.room import Pool
from windlass.core.jobs.job import Job
from windlass.core.jobs.outcomes import Outcome
from windlass.handlers.context import Context
from windlass.process.tasks import GuardedTask
from windlass.worker.isolation.child_pool import ChildRun

# Module-level names, since a lookup on an enum is slow.
_LOOP, _THREADS, _ISOLATED = Pool.LOOP, Pool.THREADS, Pool.ISOLATED


class Run:
    """One attempt of one job."""

    # Class attributes, since most runs change few of them and setting all for each run is slow.
    deadline: float = math.inf
    context: Context | None = None
    task: GuardedTask | None = None
    timer: asyncio.TimerHandle | None = None
    stopped: Outcome | None = None
    """Why the worker has asked the run to end."""
    child_run: ChildRun | None = None
    pool: Pool = _LOOP
    ended: bool = False
    reported: Outcome | None = None
    """The outcome that callbacks were given, which no later event changes."""
    over: bool = False
    """Whether the run has written the job's next state itself, in a child."""
    parked: bool = False
    """Whether that state is a wait."""
    is_ahead: bool = False
    """Whether it was claimed as a run of a quick kind, which needs no free slot."""

    def __init__(self, job: Job, began: float) -> None:
        self.job = job
        self.began = began

    @property
    def has_begun(self) -> bool:
        """Whether the handler may have been called, here or in a child process."""
        if self.pool is _ISOLATED:
            return self.context is not None or (
                self.child_run is not None and self.child_run.child is not None
            )
        return self.task is not None

    @property
    def is_plain(self) -> bool:
        """Whether the run had no steps, no transaction and nothing to undo."""
        if self.context is None or self.job.saga is not None:
            return False
        state = self.context.run_state
        return state.steps is None and not state.settled

    @property
    def is_completed(self) -> bool:
        """Whether a transaction of the handler has completed the job."""
        if self.over:
            return not self.parked
        return self.context is not None and self.context.settled

    @property
    def is_over(self) -> bool:
        """Whether the run has written the job's next state itself."""
        return self.over or (self.context is not None and self.context.run_state.is_over)

    @property
    def job_now(self) -> Job:
        """The job with the steps that this run has recorded."""
        if self.context is not None:
            course = self.context.run_state.steps
            return self.job if course is None else course.job
        return self.job if self.child_run is None else self.child_run.job_now


class Runs:
    """The runs that have not ended."""

    def __init__(self) -> None:
        # Keyed by integers, since hashing a UUID is slow.
        self._runs: dict[int, Run] = {}
        self.in_threads = 0
        """Number of runs that need a thread, whether or not they have reached their handler."""
        self.in_isolated_processes = 0
        """Number of runs that need a child process."""
        self.abandoned = 0
        """Number of runs that have ended although their handlers have not."""

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs.values())

    def get(self, job_id: UUID) -> Run | None:
        """Return the run of a job, if it has not ended."""
        return self._runs.get(job_id.int)

    def has_begun(self, job_id: UUID) -> bool:
        """Return whether a job that was started has reached its handler, or has ended."""
        run = self._runs.get(job_id.int)
        return run is None or run.task is not None

    def begun_jobs(self) -> list[Job]:
        """Return the jobs whose handlers may have been called."""
        return [run.job for run in self if run.has_begun]

    def add(self, run: Run) -> bool:
        """Add a run; return False if the job has one that has not ended."""
        return self._runs.setdefault(run.job.id.int, run) is run

    def occupy(self, run: Run, pool: Pool) -> None:
        """Count the thread or the child process that a run needs."""
        run.pool = pool
        self._count(run, 1)

    def end(self, run: Run) -> bool:
        """Remove a run; return False if it had been abandoned before."""
        if run.ended:
            self.abandoned -= 1
            return False
        run.ended = True
        if run.timer is not None:
            run.timer.cancel()
        del self._runs[run.job.id.int]
        if run.pool is not _LOOP:
            self._count(run, -1)
        return True

    def _count(self, run: Run, sign: int) -> None:
        self.in_threads += sign * (run.pool is _THREADS)
        self.in_isolated_processes += sign * (run.pool is _ISOLATED)
