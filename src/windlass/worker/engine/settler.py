"""Owns how the policy of a kind settles its jobs, even if a user's function in it fails.

The same classes of errors decide whether the outcome counts against a breaker.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from windlass.core.errors import StepError
from windlass.core.failures.describe import describe
from windlass.core.failures.error_classes import ErrorClass
from windlass.core.jobs.job import Job, Saga
from windlass.core.jobs.outcomes import Failed, Outcome, Succeeded, TimedOut
from windlass.core.jobs.retry import Retry
from windlass.core.jobs.settle import Policy, Transition, completed, give_up, settle
from windlass.handlers.registry import Registry
from windlass.handlers.steps import StepRunner
from windlass.observability.log_context import fields_of
from windlass.observability.logs import get_logger

if TYPE_CHECKING:
    from windlass.worker.engine.runs import Run

log = get_logger("windlass.worker")
_DEFAULT = Retry()


class Settler:
    """Settles jobs by the policies of their kinds."""

    def __init__(self, registry: Registry, *, max_retries: int, max_crashes: int = 3) -> None:
        self._registry = registry
        self._max_crashes = max_crashes
        self._max_retries = max_retries
        self._policies: dict[str, Policy] = {}
        self.jitter: Callable[[], float] = random.random
        """Returns the jitter of retries, from 0 to 1."""

    def settle(self, run: Run, outcome: Outcome | Transition, seconds: float) -> Transition | None:
        """Decide the transition of a job whose run has taken `seconds`.

        Return None if the run has written its own transition, by a transaction or a wait.
        """
        if type(outcome) is Succeeded and run.is_plain:
            # Fast path for a plain success: no policy, no clock, no jitter.
            return completed(run.job, outcome.result)
        if run.is_over:
            return None
        if isinstance(outcome, Transition):
            return outcome  # Settled in the child, since an exception cannot be sent.
        course = None if run.context is None else run.context.run_state.steps
        job = run.job_now if course is None else run.job
        try:
            return self.end(job, course, outcome, timedelta(seconds=seconds))
        except BaseException as error:
            log.exception("settle.failed", **fields_of(run.job))
            return give_up(run.job_now, error)

    def end(
        self, job: Job, course: StepRunner | None, outcome: Outcome, elapsed: timedelta
    ) -> Transition:
        """Decide the transition of a job whose run has ended, with the steps that it recorded."""
        unsaid: tuple[str, ...] = ()
        undo = _DEFAULT
        if course is not None:
            unsaid, job, undo = course.close(), course.job, course.undo_retry
        if isinstance(outcome, Succeeded) and job.saga is not Saga.UNDOING:
            move = completed(job, outcome.result)
        else:
            move = self.settle_job(job, _as_undo(job, outcome), elapsed, undo)
        if course is not None and job.saga is Saga.READY and move.saga is None:
            # Repeated here, in case the first write of it was lost.
            move = replace(move, saga=Saga.READY)
        return replace(move, steps=unsaid + move.steps) if unsaid else move

    def settle_job(
        self, job: Job, outcome: Outcome, elapsed: timedelta, undo: Retry = _DEFAULT
    ) -> Transition:
        """Decide the transition of a job by its kind's policy, `elapsed` after its claim.

        If the job is being undone, `undo` is the policy of the step that was just undone.
        """
        # The time of the claim is by the store's clock; the time since then is measured here.
        now = (job.started_at or job.due_at) + elapsed
        jitter = self.jitter()
        policy = self.policy(job)
        if job.saga is Saga.UNDOING:
            policy = replace(policy, undo=undo)
        try:
            return settle(job, outcome, policy, now=now, jitter=jitter)
        except BaseException:
            # A policy function of a user failed, or a user's exception class behaves unexpectedly.
            log.exception("settle.failed", **fields_of(job))
        try:
            return settle(job, outcome, policy.without_functions(), now=now, jitter=jitter)
        except BaseException as error:
            log.exception("settle.failed", **fields_of(job))
            return give_up(job, error)

    def trips(self, job: Job, outcome: Outcome) -> bool:
        """Return whether an outcome counts against the breaker of the job's kind."""
        if not isinstance(outcome, Failed | TimedOut) or job.kind not in self._registry:
            return False
        rule = self._registry.rule_of(job.kind)
        if rule is None:
            return False
        if isinstance(outcome, TimedOut):
            return rule.counts(TimeoutError(), ErrorClass.TRANSIENT)
        return rule.counts(outcome.exception, self._class_of(job, outcome.exception))

    def _class_of(self, job: Job, error: BaseException) -> ErrorClass:
        policy = self.policy(job)
        try:
            return policy.class_of(error)
        except BaseException:  # noqa: BLE001 - a function of a user's, which `settle` has logged.
            return policy.without_functions().class_of(error)

    def policy(self, job: Job) -> Policy:
        """Return the retry policy of a job."""
        policy = self._policies.get(job.kind)
        if policy is None:
            known = job.kind in self._registry
            policy = Policy(
                retry=self._registry[job.kind].retry if known else Retry(),
                max_retries=self._max_retries,
                max_crashes=self._max_crashes,
                errors=self._registry[job.kind].errors if known else {},
                app_errors=self._registry.errors,
                ordered=job.kind in self._registry.ordered,
            )
            self._policies[job.kind] = policy
        return policy


def _as_undo(job: Job, outcome: Outcome) -> Outcome:
    """Turn a success into a retry while the job has steps left to undo."""
    if job.saga is not Saga.UNDOING or not isinstance(outcome, Succeeded):
        return outcome
    error = StepError(
        "the undo run ended without an error but is incomplete; check for middleware that "
        "swallows exceptions"
    )
    return Failed(exception=error, error=describe(error))
