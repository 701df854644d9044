"""Owns the run of one job, from its start to its outcome; what becomes of it is settled elsewhere.

A run is one task. It ends once: with what the handler did, or, if a handler
does not heed its cancellation, with the reason for it.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from datetime import timedelta
from types import coroutine
from typing import Any
from uuid import UUID

from windlass.context import Context, Site
from windlass.core.durations import human
from windlass.core.errors import ConfigError
from windlass.core.job import Job, Saga
from windlass.core.outcomes import Asleep, Crashed, Outcome, Released, Snoozed, Succeeded, TimedOut
from windlass.core.plan import Pool
from windlass.core.settle import Transition
from windlass.core.suspicion import is_suspect
from windlass.observe.logs import get_logger
from windlass.observe.running import fields_of
from windlass.registry import Middleware, Registration, Registry
from windlass.runtime.alone import begin, go_on
from windlass.runtime.attempt import Handlers, as_error, outcome_of, outcome_of_error, refusal_of
from windlass.runtime.children import Answer, Children, Errand
from windlass.runtime.clocks import clock_of
from windlass.runtime.forks import end_if_forked, forks
from windlass.runtime.pace import PROMPT, Pace
from windlass.runtime.process import ChildFailed
from windlass.runtime.threads import Threads
from windlass.runtime.words import Heeded, Over

log = get_logger("windlass.executor")
_HANDFUL = 50
_LOOP, _THREADS, _CHILDREN = Pool.LOOP, Pool.THREADS, Pool.CHILDREN
"""By names of ours, since an enum takes its time to tell its members."""
_NO_ROOM = timedelta(seconds=1)
_NO_CHILD = timedelta(seconds=5)
_TURN = 0.005
_LATE = Released(
    reason=f"it could not start within {human(timedelta(seconds=PROMPT))}", begun=False
)
HEED = timedelta(seconds=2)
"""How long a cancelled handler may take to clean up before its run ends without it."""


class Run:
    """One attempt of one job."""

    # Most runs change few of these, and to set them for each would take longer than the rest.
    deadline: float = math.inf
    context: Context | None = None
    task: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None
    stopped: Outcome | None = None
    errand: Errand | None = None
    pool: Pool = _LOOP
    ended: bool = False
    over: bool = False
    """Whether what becomes of the job is in the store already, by its run in a child."""
    parked: bool = False
    """Whether that is a wait."""

    def __init__(self, job: Job, began: float) -> None:
        self.job = job
        self.began = began

    @property
    def is_plain(self) -> bool:
        """Whether it had no steps, no transaction and nothing to undo, as most have not."""
        context = self.context
        return (
            context is not None
            and context._course is None
            and not context.settled
            and self.job.saga is None
        )

    @property
    def is_completed(self) -> bool:
        """Whether the job was completed by a transaction of its handler."""
        if self.over:
            return not self.parked
        return self.context is not None and self.context.settled

    @property
    def is_over(self) -> bool:
        """Whether what becomes of the job is in the store already, by the run itself."""
        return self.over or (self.context is not None and self.context.is_over)

    @property
    def job_now(self) -> Job:
        """The job with the steps that this run has recorded."""
        if self.errand is not None:
            return self.errand.job_now
        course = None if self.context is None else self.context._course
        return self.job if course is None else course.job


class Executor:
    """Runs jobs, and says how each ended: `finish(run, outcome)`, once for every job."""

    def __init__(
        self,
        *,
        registry: Registry,
        middleware: Sequence[Middleware],
        pools: Mapping[str, Pool],
        threads: Threads,
        children: Children,
        timeout: timedelta,
        finish: Callable[[Run, Outcome | Transition], None],
        record: Callable[[Job, tuple[str, ...], Saga | None], Awaitable[None]],
        site: Site,
        slots: Callable[[], int],
    ) -> None:
        self._site = site
        self._registry = registry
        self._children = children
        self._timeout = timeout
        self._finish = finish
        self._record = record
        self._handlers = Handlers(
            registry,
            middleware,
            lambda call, kind: threads.run(call, kind.grace_or(HEED)),
            site,
            record,
            slots,
        )
        self._timeouts: dict[str, float] = {}
        self._graces = {kind: registry[kind].grace_or(HEED) for kind in registry}
        # By numbers, since an id takes its time to tell its hash.
        self._runs: dict[int, Run] = {}
        self._starting: deque[Run] = deque()
        self._pace = Pace()
        self._runner: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._now = clock_of(self._loop)
        self._forks = forks()
        self._pools = pools
        self.in_threads = 0
        """How many runs need a thread, whether they have come to their handler yet or not."""
        self.put_off_at = -math.inf
        """When a suspect was last put off, since no child was free to run it."""
        self.in_children = 0
        """How many runs need a child process."""
        self._next_check = math.inf
        self._check: asyncio.TimerHandle | None = None
        self.abandoned = 0
        """How many runs have ended although their handlers have not."""

    @property
    def runs(self) -> Collection[Run]:
        """The runs that have not ended."""
        return self._runs.values()

    def run_of(self, job_id: UUID) -> Run | None:
        """Return the run of a job, if that has not ended."""
        return self._runs.get(job_id.int)

    @property
    def bite(self) -> int:
        """How many more jobs could begin soon if they were here; 0 until that is worth a claim."""
        most = self._pace.bite
        more = most - len(self._starting)
        return more if 2 * more >= most else 0

    @property
    def has_more_to_start(self) -> bool:
        """Whether jobs that are here have not had their turn."""
        return bool(self._starting)

    def has_begun(self, job_id: UUID) -> bool:
        """Say whether a job that was started has had its turn; one that has ended had it."""
        run = self._runs.get(job_id.int)
        return run is None or run.task is not None

    def start(self, job: Job) -> None:
        """Begin to run a job."""
        run = Run(job, self._now())
        if self._runs.setdefault(job.id.int, run) is not run:
            # We lost it, got it back, and its last run has not ended yet: later, then.
            self._finish(run, Snoozed(due=HEED, begun=False))
            return
        pool = self._pools.get(job.kind)
        if (pool is not _LOOP or job.history) and not self._route(run, pool):
            self.put_off_at = self._now()
            self._end(run, Snoozed(due=_NO_ROOM, begun=False))
            return
        self._starting.append(run)
        if self._runner is None:
            self._begin_to_run()

    def _route(self, run: Run, pool: Pool | None) -> bool:
        """Choose where a job runs; False if it is a suspect, and no child is free to run it."""
        if pool is not _CHILDREN and is_suspect(run.job):
            if self.in_children >= self._children.count:
                return False
            pool = _CHILDREN
        run.pool = pool or _LOOP
        self._count(run, 1)
        return True

    def _count(self, run: Run, sign: int) -> None:
        self.in_threads += sign * (run.pool is _THREADS)
        self.in_children += sign * (run.pool is _CHILDREN)

    async def _run_some(self) -> None:
        """Run jobs one after the other, as long as they wait for nothing: one task serves many.

        The first that does wait keeps the task, and another one goes on with the rest. After every
        handful, or a few milliseconds, the loop turns, so that the next claim is on its way while
        these run.
        """
        task = self._own_task()
        try:
            await self._run_with(task)
        finally:
            if self._runner is task or self._runner is None:
                self._make_way()

    @coroutine
    def _run_with(self, task: asyncio.Task[None]) -> Generator[Any, Any, None]:
        served, turn = 0, self._now() + _TURN
        while self._starting:
            run = self._starting.popleft()
            if run.ended:
                self.abandoned -= 1
                continue
            now = self._now()
            if not self._pace.may_begin(run.began, now):
                self._end(run, run.stopped or _LATE)
                continue
            run.task = task
            performing = self._perform(run)
            if (waits := begin(performing)) is not None:
                self._make_way()
                yield from go_on(performing, *waits)
            if task.cancelling():
                return  # What was asked of one run must not follow the next.
            served += 1
            if served % _HANDFUL == 0 or now > turn:
                yield
                turn = self._now() + _TURN

    def _make_way(self) -> None:
        """Let another task go on with what is to be started."""
        self._runner = None
        if self._starting:
            self._begin_to_run()
        else:
            self._pace.rest(self._now())

    def _begin_to_run(self) -> None:
        # Not by the loop's own factory: an eager task would end before it is known as the runner.
        self._runner = asyncio.Task(self._run_some(), loop=self._loop, name="windlass-run")

    def _own_task(self) -> asyncio.Task[None]:
        task = asyncio.current_task()
        assert task is not None, "a coroutine of ours always runs in a task"  # noqa: S101
        return task

    def gather_no_more(self) -> bool:
        """Run the batches that wait for more jobs with those that they have; say if any do."""
        return self._handlers.gather_no_more()

    def stop(self, job_id: UUID, outcome: Outcome) -> None:
        """Ask a run to end for a reason; after its grace it ends without its handler's consent."""
        run = self._runs.get(job_id.int)
        if run is None or run.stopped is not None:
            return
        run.stopped = outcome
        late = as_error(outcome)
        if run.errand is not None and run.errand.child is not None:
            run.errand.stop(None if late is None else str(late))
        elif run.task is not None and (run.context is not None or run.errand is not None):
            # A run that has not come so far sees for itself that it shall not begin.
            if run.context is not None:
                run.context._cancel(late)
            run.task.cancel()
        grace = self._graces.get(run.job.kind, HEED)
        run.timer = self._loop.call_later(grace.total_seconds(), self._abandon, run)

    def abandon(self) -> None:
        """End every run that is left, heeded or not."""
        for run in list(self._runs.values()):
            self._abandon(run)

    # -- one run, in order ---------------------------------------------------------------------

    async def _perform(self, run: Run) -> None:
        outcome: Outcome | Transition | None
        try:
            outcome = run.stopped or refusal_of(run.job)
            if outcome is None and run.pool is _CHILDREN:
                outcome = await self._isolate(run)
            if outcome is None:
                trade = self._handlers.trade(run.job.kind)
                self._set_deadline(run, trade.registration, run.began)
                context = run.context = trade.enter(run.job, run.task)
                outcome = outcome_of(context, await trade.run(context), trade.target)
        except BaseException as error:  # noqa: BLE001 - SystemExit and the like are the job's own.
            known = self._site.redaction if run.context is None else run.context.redaction
            outcome = run.stopped or outcome_of_error(error, known, run.context)
        end_if_forked(self._forks)
        self._end(run, outcome)

    async def _isolate(self, run: Run) -> Outcome | Transition | None:
        """Let a child run a job; its word is final, unless it heeded when it was told to stop.

        None if no child can: then it runs here, which is better than never, and said aloud.
        """
        job = run.job
        registration = self._registry[job.kind]
        run.errand = Errand(
            job=job,
            memory=registration.memory,
            elapsed=lambda: self._now() - run.began,
            begun=lambda: self._set_deadline(run, registration, self._now()),
            report=self._site.report,
            record=self._record,
        )
        try:
            answer = await self._children.run(run.errand)
        except ChildFailed as failure:
            log.exception("child.failed", **fields_of(job), why=str(failure))
            return Snoozed(due=_NO_CHILD, begun=False)
        except (ConfigError, LookupError) as error:
            log.warning("suspect.not_isolated", **fields_of(job), why=str(error))
            run.errand = None
            return run.stopped
        return self._meaning(run, answer)

    def _meaning(self, run: Run, answer: Answer) -> Outcome | Transition:
        match answer:
            case Heeded():
                return run.stopped or Released(reason="stopped")
            case Over(parked=parked):
                run.over, run.parked = True, parked
                return Asleep(due=None) if parked else Succeeded()
            case Crashed() if run.stopped is not None:
                return run.stopped
            case Crashed(reason=reason):
                log.warning("child.died", **fields_of(run.job), why=reason)
        return answer

    def _set_deadline(self, run: Run, registration: Registration, since: float) -> None:
        seconds = self._timeouts.get(registration.kind)
        if seconds is None or run.job.timeout is not None:
            timeout = run.job.timeout or registration.timeout_or(self._timeout)
            seconds = math.inf if timeout is None else timeout.total_seconds()
            if run.job.timeout is None:
                self._timeouts[registration.kind] = seconds
        run.deadline = deadline = since + seconds
        if deadline < self._next_check:
            self._check_by(deadline)

    def _check_by(self, moment: float) -> None:
        """Look at the deadlines at a moment that is earlier: one timer serves all runs."""
        if self._check is not None:
            self._check.cancel()
        self._next_check = moment
        self._check = self._loop.call_later(moment - self._now(), self._check_deadlines)

    def _check_deadlines(self) -> None:
        self._next_check, self._check = math.inf, None
        now = self._now()
        for run in list(self._runs.values()):
            if run.deadline <= now:
                run.deadline = math.inf
                self.stop(run.job.id, TimedOut(after=self._limit_of(run.job)))
        earliest = min((run.deadline for run in self._runs.values()), default=math.inf)
        if earliest < math.inf:
            self._check_by(earliest)

    def _limit_of(self, job: Job) -> timedelta:
        return job.timeout or timedelta(seconds=self._timeouts[self._registry[job.kind].kind])

    # -- its end -------------------------------------------------------------------------------

    def _end(self, run: Run, outcome: Outcome | Transition) -> None:
        if run.ended:
            self.abandoned -= 1
            return
        run.ended = True
        if run.timer is not None:
            run.timer.cancel()
        del self._runs[run.job.id.int]
        if run.pool is not _LOOP:
            self._count(run, -1)
        self._finish(run, outcome)

    def _abandon(self, run: Run) -> None:
        """End a run whose handler does not; what that still does changes nothing of the job."""
        if not run.ended:
            self.abandoned += 1
            if run.errand is not None:
                run.errand.kill()
            log.warning(
                "job.abandoned" if run.errand is None else "job.killed",
                **fields_of(run.job),
                duration=round(self._now() - run.began, 6),
            )
            self._end(run, run.stopped or Released(reason="abandoned"))
