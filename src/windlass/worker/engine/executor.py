"""Owns one attempt of one job: `await executor.run(run)` returns its outcome."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from windlass.core.claims.room import Pool
from windlass.core.errors import ConfigError
from windlass.core.failures.exceptions import is_a
from windlass.core.jobs.outcomes import (
    Asleep,
    Crashed,
    Failed,
    Outcome,
    Released,
    Snoozed,
    Succeeded,
)
from windlass.core.jobs.settle import Transition
from windlass.handlers.context import Context
from windlass.handlers.middleware.watching import tell_end
from windlass.handlers.registry import Middleware, Registration, Registry
from windlass.handlers.run_environment import RunEnvironment
from windlass.observability.log_context import fields_of, running
from windlass.observability.logs import get_logger
from windlass.process.clocks import clock_of
from windlass.process.fork_guard import end_if_forked, forks
from windlass.process.tasks import GuardedTask
from windlass.worker.engine.attempt_outcome import (
    as_error,
    flush_at_end,
    outcome_of,
    outcome_of_error,
    refusal_of,
    run_end,
)
from windlass.worker.engine.deadlines import Deadlines
from windlass.worker.engine.handler_runner import HandlerRunners
from windlass.worker.engine.runs import Run
from windlass.worker.engine.threads import Threads
from windlass.worker.engine.writing.checkpointer import Checkpointer
from windlass.worker.isolation.child_pool import Answer, ChildPool, ChildRun
from windlass.worker.isolation.child_process import ChildFailed
from windlass.worker.isolation.protocol import Over, StopNoticed
from windlass.worker.state import WorkerState

log = get_logger("windlass.executor")
_ISOLATED = Pool.ISOLATED
_CHILD_FAILED_DELAY = timedelta(seconds=5)
CANCEL_GRACE = timedelta(seconds=2)
"""How long a cancelled handler may take to clean up before its run ends without it."""


class Executor:
    """Runs jobs here, in threads or in child processes."""

    def __init__(
        self,
        state: WorkerState,
        *,
        registry: Registry,
        middleware: Sequence[Middleware],
        threads: Threads,
        child_pool: ChildPool,
        checkpointer: Checkpointer,
        deadlines: Deadlines,
        environment: RunEnvironment,
    ) -> None:
        self._state = state
        self._registry = registry
        self._child_pool = child_pool
        self._checkpointer = checkpointer
        self._deadlines = deadlines
        self._environment = environment
        self._handlers = HandlerRunners(
            registry,
            middleware,
            lambda call, kind: threads.run(call, kind.grace_or(CANCEL_GRACE)),
            environment,
            checkpointer.record,
            state,
        )
        self._loop = asyncio.get_running_loop()
        self._now = clock_of(self._loop)
        self._forks = forks()
        self._reporting: set[GuardedTask] = set()

    async def run(self, run: Run, task: GuardedTask) -> Outcome | Transition:
        """Run a job in a task and return its outcome; a child process settles its jobs itself."""
        outcome: Outcome | Transition | None
        runner = value = context = None
        try:
            outcome = run.stopped or refusal_of(run.job)
            if outcome is None and run.pool is _ISOLATED:
                outcome = await self._run_in_child(run)
            if outcome is None:
                kind = run.job.kind
                runner = self._handlers.known.get(kind) or self._handlers.runner(kind)
                self._deadlines.set(run, runner.registration, run.began)
                context = run.context = task.owner = runner.enter(run.job, task)
                value = await runner.run(context)
                outcome = outcome_of(context, value, runner.target)
        except BaseException as error:  # noqa: BLE001 - SystemExit and the like are the job's own.
            outcome = run.stopped or self._outcome_of_error(run, task, error)
        end_if_forked(self._forks)
        if (runner is None or runner.watchers) and not run.ended:
            await self._report_end(run, outcome, value)
        if context is not None and context.run_state.stream is not None:
            await flush_at_end(context)
        return outcome

    def interrupt(self, run: Run, outcome: Outcome) -> None:
        """Cancel the handler of a run; a run that has not begun checks for this itself."""
        late = as_error(outcome)
        if run.child_run is not None and run.child_run.child is not None:
            run.child_run.stop(None if late is None else str(late))
        elif run.task is not None and (run.context is not None or run.child_run is not None):
            if run.context is not None:
                run.context.run_state.cancel(late)
            run.task.end()

    def abandon(self, run: Run) -> Outcome | Transition:
        """Give up on a handler that does not end, and return the outcome of its run."""
        if run.child_run is not None:
            run.child_run.kill()
        log.warning(
            "job.abandoned" if run.child_run is None else "job.killed",
            **fields_of(run.job),
            duration=round(self._now() - run.began, 6),
        )
        outcome = self._reported_outcome(run) or run.stopped or Released(reason="abandoned")
        if self._handlers.is_watched(run.job.kind):
            reporting = GuardedTask(
                self._report_end(run, outcome), loop=self._loop, context=contextvars.Context()
            )
            self._reporting.add(reporting)
            reporting.add_done_callback(self._reporting.discard)
        return outcome

    async def finish_reporting(self) -> None:
        """Wait briefly for the callbacks of runs that were abandoned."""
        if self._reporting:
            await asyncio.wait(self._reporting, timeout=CANCEL_GRACE.total_seconds())

    def flush_batches(self) -> bool:
        """Run the batches that wait for more jobs now; return whether there were any."""
        return self._handlers.flush_batches()

    def _outcome_of_error(self, run: Run, task: GuardedTask, error: BaseException) -> Outcome:
        redaction = self._environment.redaction if run.context is None else run.context.redaction
        outcome = outcome_of_error(error, redaction, run.context)
        if type(outcome) is Failed and self._state.program_is_ending:
            is_cancelled = is_a(error, asyncio.CancelledError)
            if (is_cancelled and task.cancelled_outside) or type(error) is KeyboardInterrupt:
                return Released(reason="the program is ending")
        return outcome

    # -- runs in child processes ---------------------------------------------------------------

    async def _run_in_child(self, run: Run) -> Outcome | Transition | None:
        """Return the answer of a child; None if no child can run the job, so that it runs here."""
        job = run.job
        registration = self._registry[job.kind]
        run.child_run = ChildRun(
            job=job,
            memory=registration.memory,
            began=run.began,
            begun=lambda: self._begun_in_child(run, registration),
            report=self._environment.report,
            record=self._checkpointer.record,
            append=self._environment.streams.append,
        )
        try:
            answer = await self._child_pool.run(run.child_run)
        except ChildFailed as failure:
            log.exception("child.failed", **fields_of(job), why=str(failure))
            return Snoozed(due=_CHILD_FAILED_DELAY, begun=False)
        except (ConfigError, LookupError) as error:
            log.warning("suspect.not_isolated", **fields_of(job), why=str(error))
            run.child_run = None
            self._list_as_begun(run)
            return run.stopped
        return self._outcome_of_answer(run, answer)

    def _begun_in_child(self, run: Run, registration: Registration) -> None:
        self._list_as_begun(run)
        self._deadlines.set(run, registration, self._now())

    def _list_as_begun(self, run: Run) -> None:
        if (begun := self._state.begun_jobs) is not None:
            begun.add(run.job)

    def _outcome_of_answer(self, run: Run, answer: Answer) -> Outcome | Transition:
        match answer:
            case StopNoticed():
                return run.stopped or Released(reason="stopped")
            case Over(parked=parked):
                run.over, run.parked = True, parked
                return Asleep(due=None) if parked else Succeeded()
            case Crashed() if run.stopped is not None:
                return run.stopped
            case Crashed(reason=reason):
                log.warning("child.died", **fields_of(run.job), why=reason)
        return answer

    # -- callbacks ------------------------------------------------------------------------------

    def _reported_outcome(self, run: Run) -> Outcome | Transition | None:
        if run.child_run is None or run.child_run.known is None:
            return run.reported
        return self._outcome_of_answer(run, run.child_run.known)

    async def _report_end(self, run: Run, outcome: Outcome | Transition, value: Any = None) -> None:
        """Call the callbacks of the kind before the outcome is stored.

        A child calls them for the runs that ended there: it answers with a transition.
        """
        has_begun = run.context is not None or run.child_run is not None
        if isinstance(outcome, Transition) or run.over or not has_begun:
            return
        if run.reported is not None or not getattr(outcome, "begun", True):
            return
        run.reported = outcome
        context = run.context or Context(run.job, self._environment, None)
        running.set(context)
        if isinstance(task := asyncio.current_task(), GuardedTask):
            # Otherwise the timeouts of the callbacks could not cancel the task.
            task.owner = context
        took = timedelta(seconds=self._now() - run.began)
        end = run_end(context, outcome, value, took, stopped=outcome is run.stopped)
        try:
            await tell_end(self._handlers.runner(run.job.kind).watchers, context, end)
        except BaseException:  # noqa: BLE001 - an interrupted callback does not change the outcome.
            log.warning("callbacks.interrupted", **fields_of(run.job))
