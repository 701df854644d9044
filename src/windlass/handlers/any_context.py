"""Owns what every handler can know and say about its own run: `AnyContext`.

`Context` adds what an `async def` handler awaits, `SyncContext` the same for `def` handlers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from windlass.core.jobs.job import TICK, Job, Progress, Saga
from windlass.core.jobs.settle import completed
from windlass.core.payloads.redaction import Redaction
from windlass.core.values.text import storable
from windlass.handlers.job_transaction import JobTransaction
from windlass.handlers.provided import Provided
from windlass.handlers.run_environment import RunEnvironment
from windlass.handlers.run_state import RunState
from windlass.handlers.steps import StepEnvironment
from windlass.observability.log_context import fields_of
from windlass.observability.logs import Logger, UserLogger
from windlass.observability.run_log_lines import RUNS

_log = UserLogger(logging.getLogger(RUNS), {})


class AnyContext:
    """One run of one job: what `Context` and `SyncContext` have in common.

    For functions that handlers of both sorts call.
    """

    arguments: Any = None
    """The handler's arguments: a dict by names, or the one payload."""
    log: Logger = _log
    """A logger whose lines carry the ids of job, flow and worker, the kind, queue and attempt."""

    def __init__(
        self, job: Job, environment: RunEnvironment, step_environment: StepEnvironment | None
    ) -> None:
        self.job = job
        self.run_state = RunState(job, environment, step_environment)
        """The worker's view of this run, which is no handler's business."""

    @property
    def job_id(self) -> UUID:
        """The job's id."""
        return self.job.id

    @property
    def kind(self) -> str:
        """The job's kind."""
        return self.job.kind

    @property
    def queue(self) -> str:
        """The queue that the job came from."""
        return self.job.queue

    @property
    def attempt(self) -> int:
        """How often a worker has claimed the job, this time included.

        The first run may have an attempt above 1: a worker that claimed the job may have given it
        back, or died, before the handler began. `failures == 0` says that it has not failed yet.
        """
        return self.job.attempt

    @property
    def failures(self) -> int:
        """How often the job has failed before this run, as its retries are counted; 0 at first.

        Runs that were snoozed, released, rescued or that met a system error are attempts, and no
        failures. A job that is redriven begins at 0 again.
        """
        return self.job.failures

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers that the producer sent beside the payload."""
        return self.job.headers

    @property
    def worker_id(self) -> str:
        """The worker that runs it."""
        return self.job.worker or ""

    @property
    def log_fields(self) -> Mapping[str, object]:
        """The fields of every log line that is written inside this run."""
        return fields_of(self.job)

    @property
    def provided(self) -> Provided:
        """The values that handlers share in this process: `ctx.provided[Pool]` is the pool."""
        return self.run_state.environment.provided

    @property
    def scheduled_for(self) -> datetime | None:
        """The time that this job of a schedule is for, in UTC; None for a job of no schedule.

        It is the time that was meant: jitter, or a worker that came late, does not change it.
        """
        time = self.job.headers.get(TICK)
        return None if time is None else datetime.fromisoformat(time)

    @property
    def settled(self) -> bool:
        """Whether the job was completed by a transaction of its handler."""
        return self.run_state.settled

    @property
    def redaction(self) -> Redaction:
        """Masks the text that this run leaves behind: fields by their names, and its secrets."""
        return self.run_state.redaction

    @property
    def idempotency_key(self) -> str:
        """A key that is the same in every run of this job; hand it to services that take one.

        The job's own, unless its producer gave one: then jobs of the same kind can share it.
        """
        return self.job.idempotency_key or f"windlass-{self.job.id}"

    @property
    def cancelled(self) -> bool:
        """Whether this run must end: time is up, an operator cancelled it, or the lease is lost.

        An `async def` handler also gets an `asyncio.CancelledError`; one in a thread looks here.
        A `def` handler in a child process is interrupted, by `TimeoutError` if its time is up.
        """
        return self.run_state.is_cancelled

    def raise_if_cancelled(self) -> None:
        """End a handler that runs in a thread, if its run must end.

        Raises:
            asyncio.CancelledError: this run must end.
        """
        if self.run_state.is_cancelled:
            raise asyncio.CancelledError

    def progress(self, fraction: float, message: str = "") -> None:
        """Say how far the job is, from 0 to 1. Returns at once; only the latest word is stored."""
        if not 0 <= fraction <= 1:
            raise ValueError(f"progress must be between 0 and 1, got {fraction!r}")
        said = storable(self.run_state.redaction.text(message), 500) if message else ""
        self.run_state.environment.report(self.job, Progress(fraction=fraction, message=said))

    def _transaction(self) -> JobTransaction:
        run = self.run_state
        if self.job.saga is Saga.UNDOING:
            raise run.start_steps().suspend(None)  # Whatever is left to undo came before this.
        return JobTransaction(run, run.environment.transact(completed(self.job)))
