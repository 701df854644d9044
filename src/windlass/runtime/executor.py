"""Owns the run of one job, from its start to its outcome; what becomes of it is settled elsewhere.

A run is one task. It ends once: with what the handler did, or, if a handler
does not heed its cancellation, with the reason for it.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from windlass.context import Context, enter
from windlass.core.durations import human
from windlass.core.errors import PayloadInvalid, ResultInvalid
from windlass.core.failure import describe
from windlass.core.job import Job, Progress
from windlass.core.outcomes import (
    Cancel,
    Cancelled,
    Failed,
    Outcome,
    Released,
    Snooze,
    Snoozed,
    Succeeded,
    TimedOut,
)
from windlass.core.payload import encode_json
from windlass.core.plan import Pool
from windlass.core.settle import Transition
from windlass.middleware.chain import Run as Handle
from windlass.middleware.chain import chain
from windlass.observe.logs import get_logger
from windlass.registry import Middleware, Registration, Registry
from windlass.runtime.alone import Alone
from windlass.runtime.lines import fields_of
from windlass.runtime.pace import PROMPT, Pace
from windlass.runtime.threads import Threads
from windlass.store import Transaction

log = get_logger("windlass.executor")
_HANDFUL = 50
_TURN = 0.005
_LATE = Released(reason=f"it could not start within {human(timedelta(seconds=PROMPT))}")
HEED = timedelta(seconds=2)
"""How long a cancelled handler may take to clean up before its run ends without it."""


class Run:
    """One attempt of one job."""

    __slots__ = (
        "began", "context", "deadline", "ended", "in_thread", "job", "stopped", "task", "timer",
    )  # fmt: skip

    def __init__(self, job: Job, began: float) -> None:
        self.job = job
        self.began = began
        self.deadline = math.inf
        self.context: Context | None = None
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.stopped: Outcome | None = None
        self.in_thread = False
        self.ended = False


class Executor:
    """Runs jobs, and says how each ended: `finish(run, outcome)`, once for every job."""

    def __init__(
        self,
        *,
        registry: Registry,
        middleware: Sequence[Middleware],
        threads: Threads,
        worker_id: Callable[[], str],
        timeout: timedelta,
        finish: Callable[[Run, Outcome], None],
        report: Callable[[Job, Progress], None],
        transact: Callable[[Transition], Transaction],
    ) -> None:
        self._registry = registry
        self._threads = threads
        self._worker_id = worker_id
        self._timeout = timeout
        self._finish = finish
        self._report = report
        self._transact = transact
        self._middleware = tuple(middleware)
        self._handlers: dict[str, Handle] = {}
        self._timeouts: dict[str, float] = {}
        self._runs: dict[UUID, Run] = {}
        self._starting: deque[Run] = deque()
        self._pace = Pace()
        self._runner: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._pools = registry.pools()
        self.in_threads = 0
        """How many runs need a thread, whether they have come to their handler yet or not."""
        self._next_check = math.inf
        self._check: asyncio.TimerHandle | None = None
        self.abandoned = 0
        """How many runs have ended although their handlers have not."""

    @property
    def runs(self) -> Mapping[UUID, Run]:
        """The runs that have not ended."""
        return self._runs

    @property
    def bite(self) -> int:
        """How many more jobs could begin soon if they were here; 0 until that is worth a claim."""
        most = self._pace.bite
        more = most - len(self._starting)
        return more if 2 * more >= most else 0

    def start(self, job: Job) -> None:
        """Begin to run a job."""
        run = Run(job, self._loop.time())
        if job.id in self._runs:
            # We lost it, got it back, and its last run has not ended yet: later, then.
            self._finish(run, Snoozed(due=HEED))
            return
        self._runs[job.id] = run
        run.in_thread = self._pools.get(job.kind) is Pool.THREADS
        self.in_threads += run.in_thread
        self._starting.append(run)
        if self._runner is None:
            self._runner = self._loop.create_task(self._run_some(), name="windlass-run")

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

    async def _run_with(self, task: asyncio.Task[None]) -> None:
        served, turn = 0, self._loop.time() + _TURN
        while self._starting:
            run = self._starting.popleft()
            if run.ended:
                self.abandoned -= 1
                continue
            now = self._loop.time()
            if not self._pace.may_begin(run.began, now):
                self._end(run, run.stopped or _LATE)
                continue
            run.task = task
            await Alone(self._perform(run), self._make_way)
            if task.cancelling():
                return  # What was asked of one run must not follow the next.
            served += 1
            if served % _HANDFUL == 0 or now > turn:
                await asyncio.sleep(0)
                turn = self._loop.time() + _TURN

    def _make_way(self) -> None:
        """Let another task go on with what is to be started."""
        self._runner = None
        if self._starting:
            self._runner = self._loop.create_task(self._run_some(), name="windlass-run")
        else:
            self._pace.rest(self._loop.time())

    def _own_task(self) -> asyncio.Task[None]:
        task = asyncio.current_task()
        assert task is not None, "a coroutine of ours always runs in a task"  # noqa: S101
        return task

    def stop(self, job_id: UUID, outcome: Outcome) -> None:
        """Ask a run to end for a reason; after a while it ends without its handler's consent."""
        run = self._runs.get(job_id)
        if run is None or run.stopped is not None:
            return
        run.stopped = outcome
        if run.context is not None and run.task is not None:
            # A run that has not come so far sees for itself that it shall not begin.
            run.context._cancel(_as_error(outcome))
            run.task.cancel()
        run.timer = self._loop.call_later(HEED.total_seconds(), self._abandon, run)

    def abandon(self) -> None:
        """End every run that is left, heeded or not."""
        for run in list(self._runs.values()):
            self._abandon(run)

    # -- one run, in order ---------------------------------------------------------------------

    async def _perform(self, run: Run) -> None:
        try:
            outcome = await self._attempt(run)
        except BaseException as error:  # noqa: BLE001 - SystemExit and the like are the job's own.
            outcome = run.stopped or _outcome_of_error(error)
        self._end(run, outcome)

    async def _attempt(self, run: Run) -> Outcome:
        job = run.job
        if (refusal := run.stopped or _refusal(job)) is not None:
            return refusal
        registration = self._registry[job.kind]
        self._set_deadline(run, registration)
        arguments = registration.target.codec.decode(job.payload)
        context = run.context = Context(
            job=job,
            worker_id=self._worker_id(),
            arguments=arguments,
            report=self._report,
            transact=self._transact,
        )
        enter(context)
        value = await self._handler(registration)(context)
        if not context.settled:
            return _outcome_of(job, value)
        if value is not None:
            self._warn_of_ignored_result(job)
        return Succeeded()

    def _warn_of_ignored_result(self, job: Job) -> None:
        log.warning(
            "job.result_ignored",
            **fields_of(job, self._worker_id()),
            why="ctx.transaction() completed the job before its handler returned this",
        )

    def _handler(self, registration: Registration) -> Handle:
        """Return the handler with all middleware around it, put together once for each kind."""
        handler = self._handlers.get(registration.kind)
        if handler is None:
            layers = (*self._middleware, *registration.middleware)
            handler = chain(layers, self._innermost(registration))
            self._handlers[registration.kind] = handler
        return handler

    def _innermost(self, registration: Registration) -> Handle:
        call = registration.target.call
        if registration.target.pool is Pool.LOOP:
            return lambda context: call(context, context.arguments)
        return lambda context: self._threads.run(lambda: call(context, context.arguments))

    def _set_deadline(self, run: Run, registration: Registration) -> None:
        seconds = self._timeouts.get(registration.kind)
        if seconds is None or run.job.timeout is not None:
            timeout = run.job.timeout or registration.timeout_or(self._timeout)
            seconds = math.inf if timeout is None else timeout.total_seconds()
            if run.job.timeout is None:
                self._timeouts[registration.kind] = seconds
        run.deadline = run.began + seconds
        if run.deadline < self._next_check:
            self._check_by(run.deadline)

    def _check_by(self, moment: float) -> None:
        """Look at the deadlines at a moment that is earlier: one timer serves all runs."""
        if self._check is not None:
            self._check.cancel()
        self._next_check = moment
        self._check = self._loop.call_at(moment, self._check_deadlines)

    def _check_deadlines(self) -> None:
        self._next_check, self._check = math.inf, None
        now = self._loop.time()
        for run in list(self._runs.values()):
            if run.deadline <= now:
                after = timedelta(seconds=round(run.deadline - run.began, 6))
                run.deadline = math.inf
                self.stop(run.job.id, TimedOut(after=after))
        earliest = min((run.deadline for run in self._runs.values()), default=math.inf)
        if earliest < math.inf:
            self._check_by(earliest)

    # -- its end -------------------------------------------------------------------------------

    def _end(self, run: Run, outcome: Outcome) -> None:
        if run.ended:
            self.abandoned -= 1
            return
        run.ended = True
        if run.timer is not None:
            run.timer.cancel()
        del self._runs[run.job.id]
        self.in_threads -= run.in_thread
        self._finish(run, outcome)

    def _abandon(self, run: Run) -> None:
        """End a run whose handler does not; what that still does changes nothing of the job."""
        if not run.ended:
            self.abandoned += 1
            log.warning(
                "job.abandoned",
                **fields_of(run.job, self._worker_id()),
                duration=round(self._loop.time() - run.began, 6),
            )
            self._end(run, run.stopped or Released(reason="abandoned"))


def _as_error(outcome: Outcome) -> TimeoutError | None:
    if isinstance(outcome, TimedOut):
        return TimeoutError(f"no result within {human(outcome.after)}")
    return None


def _refusal(job: Job) -> Outcome | None:
    """Return why a claimed job is not to run at all, if it is not."""
    if job.cancel_requested:
        return Cancelled(reason=job.reason or "cancelled")
    if (
        job.expires_at is not None
        and job.started_at is not None
        and job.started_at >= job.expires_at
    ):
        return Cancelled(reason=f"expired at {job.expires_at.isoformat()}, before it could start")
    return None


def _outcome_of_error(error: BaseException) -> Outcome:
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
        # Neither we nor the handler did that: the program around the worker is ending.
        return Released(reason="cancelled from outside")
    return Failed(exception=error, error=describe(error))


_DONE = Succeeded()


def _outcome_of(job: Job, value: Any) -> Outcome:
    """Turn what a handler returned into an outcome."""
    match value:
        case None:
            return _DONE
        case Snooze(due=due):
            return Snoozed(due=due)
        case Cancel(reason=reason):
            return Cancelled(reason=reason)
        case _:
            return _result_of(job, value)


def _result_of(job: Job, value: Any) -> Outcome:
    try:
        return Succeeded(result=encode_json(job.kind, value))
    except PayloadInvalid as refused:
        where = f"{refused.field}: " if refused.field else ""
        error = ResultInvalid(job.kind, where + refused.reason)
        return Failed(exception=error, error=describe(error))
