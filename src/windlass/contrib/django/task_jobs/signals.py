"""Owns the signals of the worker, `task_started` and `task_finished`, and when they are sent.

A task is finished once its job is in a final state in the store: a failure that is tried again is
none. Receivers may use the ORM, so they are called in a thread; what they raise is logged. If they
are slower than the worker, signals wait for them up to a limit; those above it are not sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import close_old_connections
from msgspec.structs import replace

from windlass.contrib.django.task_jobs.framework import (
    TaskResultDoesNotExist,
    task_backends,
    task_finished,
    task_started,
)
from windlass.contrib.django.task_jobs.results import result_of
from windlass.core.errors import JobDead
from windlass.core.jobs.job import Job
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import FINISHED, State
from windlass.handlers.context import Context
from windlass.observability.logs import get_logger
from windlass.observability.meters import Meters

if TYPE_CHECKING:
    from windlass.contrib.django.project_apps import ProjectApp

log = get_logger("windlass.django")
_MAX_WAITING = 10_000
"""Signals that wait for receivers: each holds a job, and the exception of a failed one."""


class TaskEnds:
    """Sends `task_finished` for the jobs of a worker, in the order in which they are settled."""

    def __init__(self, app: ProjectApp) -> None:
        self._app = app
        self._thread: ThreadPoolExecutor | None = None
        self._errors: dict[UUID, BaseException] = {}
        self._submitted = 0
        self._begun = 0
        self._refused = 0
        self.around: Callable[[Callable[[], None]], None] = _with_own_connections
        """Calls receivers; tests let them use the connections of the test."""

    def meters(self) -> Meters:
        """Return the meters of a worker, which learn of every outcome that is stored."""
        return _Meters(self)

    def failed(self, ctx: Context, error: BaseException) -> None:
        """Keep the exception of a run until its outcome is stored."""
        self._errors[ctx.job_id] = error

    def settled(self, job: Job, move: Transition) -> None:
        """Send the signal for a job that is finished; forget the error of any other."""
        error = self._errors.pop(job.id, None)
        if move.state in FINISHED and job.kind in self._app.registry:
            if self._submitted - self._begun >= _MAX_WAITING:
                self._refuse()
                return
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="windlass-signals")
            self._submitted += 1
            self._thread.submit(self._send, _finished(job, move), error)

    def _refuse(self) -> None:
        if not self._refused:
            log.warning("signals.too_slow", signal="task_finished", waiting=_MAX_WAITING)
        self._refused += 1

    def forget(self, job: Job) -> None:
        """Forget the error of a run whose outcome was rejected."""
        self._errors.pop(job.id, None)

    async def wait(self) -> None:
        """Wait until all signals are sent, when a worker ends.

        The worker cancels this if it takes too long: signals that still wait are then not sent.
        """
        await asyncio.sleep(0)  # Answers of the store are handled by the loop's next round.
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            await asyncio.to_thread(thread.shutdown)
        finally:
            thread.shutdown(wait=False, cancel_futures=True)
            not_sent = self._refused + self._submitted - self._begun
            self._submitted = self._begun = self._refused = 0
            if not_sent:
                log.warning("signals.not_sent", signal="task_finished", count=not_sent)

    def _send(self, job: Job, error: BaseException | None) -> None:
        self._begun += 1  # Only in this thread; the loop only reads it.
        try:
            self.around(lambda: self._send_result(job, error))
        except Exception:
            log.exception("callback.failed", callback="task_finished", job_id=str(job.id))

    def _send_result(self, job: Job, error: BaseException | None) -> None:
        try:
            result = result_of(self._app, job)
        except TaskResultDoesNotExist:
            return  # A handler of the app that is no task.
        sender = type(task_backends[self._app.alias])
        if job.state is State.COMPLETED:
            task_finished.send_robust(sender, task_result=result)
            return
        try:
            # Receivers such as Django's own log the exception that is being handled.
            raise _shown(error) or JobDead(job.id, job.reason or "it failed", None)
        except BaseException:  # noqa: BLE001 - it is the job's.
            task_finished.send_robust(sender, task_result=result)


class _Meters(Meters):
    """Counts as all meters do, and passes outcomes on."""

    def __init__(self, ends: TaskEnds) -> None:
        super().__init__()
        self._ends = ends

    def settled(self, job: Job, move: Transition) -> None:
        """Count an outcome that is stored."""
        super().settled(job, move)
        self._ends.settled(job, move)

    def fenced(self, job: Job) -> None:
        """Count an outcome that was rejected."""
        super().fenced(job)
        self._ends.forget(job)


def send_started(app: ProjectApp, result: Any) -> None:
    """Send `task_started`, in the thread of a `def` task."""
    task_started.send_robust(type(task_backends[app.alias]), task_result=result)


async def asend_started(app: ProjectApp, result: Any) -> None:
    """Send `task_started`, for an `async def` task."""
    await task_started.asend_robust(type(task_backends[app.alias]), task_result=result)


def _shown(error: BaseException | None) -> BaseException | None:
    """Return an exception without the frames that led to the task."""
    if error is None:
        return None
    frame = error.__traceback__
    while frame is not None and _is_of_windlass(frame):
        frame = frame.tb_next
    return error if frame is None else error.with_traceback(frame)


def _is_of_windlass(frame: TracebackType) -> bool:
    return str(frame.tb_frame.f_globals.get("__name__")).startswith("windlass.")


def _with_own_connections(call: Callable[[], None]) -> None:
    close_old_connections()
    try:
        call()
    finally:
        close_old_connections()


def _finished(job: Job, move: Transition) -> Job:
    """Return a job as it is after a transition to a final state."""
    history = (*job.history, move.attempt) if move.attempt is not None else job.history
    return replace(
        job,
        state=move.state,
        result=move.result,
        error=move.error,
        reason=move.reason,
        history=history,
        finished_at=datetime.now(UTC),
    )
