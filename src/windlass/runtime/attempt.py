"""Owns what is the same wherever a handler runs: what is around it, and what its end means."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from windlass.context import Context
from windlass.core.durations import human
from windlass.core.errors import PayloadInvalid, ResultInvalid
from windlass.core.failure import describe
from windlass.core.job import Job
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
from windlass.core.plan import Pool
from windlass.core.redaction import Redaction
from windlass.middleware.chain import Run as Handle
from windlass.middleware.chain import chain
from windlass.observe.logs import get_logger
from windlass.registry import Middleware, Registration, Target
from windlass.runtime.lines import fields_of

log = get_logger("windlass.executor")
_DONE = Succeeded()


class Handlers:
    """The handlers with all middleware around them, put together once for each kind.

    `elsewhere` runs a call where a `def` handler does not block the event loop.
    """

    def __init__(
        self,
        middleware: Sequence[Middleware],
        elsewhere: Callable[[Callable[[], Any]], Awaitable[Any]],
    ) -> None:
        self._middleware = tuple(middleware)
        self._elsewhere = elsewhere
        self._made: dict[str, Handle] = {}

    def of(self, registration: Registration) -> Handle:
        """Return the handler of a kind."""
        handler = self._made.get(registration.kind)
        if handler is None:
            layers = (*self._middleware, *registration.middleware)
            handler = chain(layers, self._innermost(registration))
            self._made[registration.kind] = handler
        return handler

    def _innermost(self, registration: Registration) -> Handle:
        call, elsewhere = registration.target.call, self._elsewhere
        if registration.target.pool is Pool.LOOP:
            return lambda context: call(context, context.arguments)
        return lambda context: elsewhere(lambda: call(context, context.arguments))


def refusal_of(job: Job) -> Outcome | None:
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


def as_error(outcome: Outcome) -> TimeoutError | None:
    """Return what a run that is stopped is told, if its time is up."""
    if isinstance(outcome, TimedOut):
        return TimeoutError(f"no result within {human(outcome.after)}")
    return None


def outcome_of_error(error: BaseException, redaction: Redaction) -> Outcome:
    """Turn what a run raised into an outcome."""
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
        # Neither we nor the handler did that: the program around the worker is ending.
        return Released(reason="cancelled from outside")
    return Failed(exception=error, error=describe(error, redaction))


def outcome_of(context: Context, value: Any, target: Target) -> Outcome:
    """Turn what a handler returned into an outcome."""
    if context.settled:
        if value is not None:
            _warn_of_ignored_result(context)
        return _DONE
    match value:
        case None:
            return _DONE
        case Snooze(due=due):
            return Snoozed(due=due)
        case Cancel(reason=reason):
            return Cancelled(reason=context.redaction.text(reason))
        case _:
            return _result_of(context, value, target)


def _warn_of_ignored_result(context: Context) -> None:
    log.warning(
        "job.result_ignored",
        **fields_of(context.job, context.worker_id),
        why="ctx.transaction() completed the job before its handler returned this",
    )


def _result_of(context: Context, value: Any, target: Target) -> Outcome:
    kind = context.job.kind
    try:
        return Succeeded(result=target.encode_result(kind, value))
    except PayloadInvalid as refused:
        where = f"{refused.field}: " if refused.field else ""
        error = ResultInvalid(kind, where + refused.reason)
        return Failed(exception=error, error=describe(error, context.redaction))
