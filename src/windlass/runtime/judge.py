"""Owns what becomes of a job by its kind's policy, whatever a user's own code in that does.

And whether its end counts against a breaker, which goes by the same classes of errors.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from datetime import timedelta

from msgspec.structs import replace

from windlass.core.error_classes import ErrorClass
from windlass.core.errors import StepError
from windlass.core.failure import describe
from windlass.core.job import Job, Saga
from windlass.core.outcomes import Failed, Outcome, Succeeded, TimedOut
from windlass.core.retry import Retry
from windlass.core.settle import Policy, Transition, completed, give_up, settle
from windlass.observe.logs import get_logger
from windlass.observe.running import fields_of
from windlass.registry import Registry
from windlass.steps import Course

log = get_logger("windlass.worker")
_DEFAULT = Retry()


class Judge:
    """Settles jobs by the policies of their kinds."""

    def __init__(self, registry: Registry, *, max_retries: int, max_crashes: int = 3) -> None:
        self._registry = registry
        self._max_crashes = max_crashes
        self._max_retries = max_retries
        self._policies: dict[str, Policy] = {}
        self.jitter: Callable[[], float] = random.random
        """Spreads retries, from 0 to 1: by how much of their jitter they wait longer."""

    def end(
        self, job: Job, course: Course | None, outcome: Outcome, elapsed: timedelta
    ) -> Transition:
        """Decide what becomes of a job whose run has ended, with the steps that it came to."""
        unsaid: tuple[str, ...] = ()
        undo = _DEFAULT
        if course is not None:
            unsaid, job, undo = course.close(), course.job, course.undo_retry
        if isinstance(outcome, Succeeded) and job.saga is not Saga.UNDOING:
            move = completed(job, outcome.result)
        else:
            move = self.settle(job, _as_undo(job, outcome), elapsed, undo)
        if course is not None and job.saga is Saga.READY and move.saga is None:
            # Should the word have been lost by which it was said first.
            move = replace(move, saga=Saga.READY)
        return replace(move, steps=unsaid + move.steps) if unsaid else move

    def settle(
        self, job: Job, outcome: Outcome, elapsed: timedelta, undo: Retry = _DEFAULT
    ) -> Transition:
        """Decide what becomes of a job that was claimed so long ago.

        If it is being undone, `undo` is the policy of what was just undone.
        """
        # The claim's time is the store's; what has passed since is ours to add.
        now = (job.started_at or job.due_at) + elapsed
        jitter = self.jitter()
        policy = self.policy(job)
        if job.saga is Saga.UNDOING:
            policy = dataclasses.replace(policy, undo=undo)
        try:
            return settle(job, outcome, policy, now=now, jitter=jitter)
        except Exception:
            # A function of a user's, or an exception of a user's that is not what it seems.
            log.exception("settle.failed", **fields_of(job))
        try:
            return settle(job, outcome, policy.without_functions(), now=now, jitter=jitter)
        except Exception as error:
            log.exception("settle.failed", **fields_of(job))
            return give_up(job, error)

    def trips(self, job: Job, outcome: Outcome) -> bool:
        """Say whether an outcome counts against the breaker that the job's kind goes by."""
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
        except Exception:  # noqa: BLE001 - a function of a user's, of which `settle` has told.
            return policy.without_functions().class_of(error)

    def policy(self, job: Job) -> Policy:
        """Return what bounds the tries of a job."""
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
    """Take no end of a job for a success while there is something left to undo."""
    if job.saga is not Saga.UNDOING or not isinstance(outcome, Succeeded):
        return outcome
    error = StepError(
        "the run of its undos ended as if all was well: does a middleware swallow exceptions?"
    )
    return Failed(exception=error, error=describe(error))
