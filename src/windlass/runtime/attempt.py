"""Owns what is the same wherever a handler runs: what is around it, and what its end means."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from windlass.context import Context, Site
from windlass.core.durations import human
from windlass.core.errors import PayloadInvalid, ResultInvalid, StepError
from windlass.core.failure import describe
from windlass.core.job import Job, Saga
from windlass.core.outcomes import (
    Asleep,
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
from windlass.core.payload import decode_json
from windlass.core.plan import Pool
from windlass.core.redaction import Redaction
from windlass.core.secret import Sealing
from windlass.middleware.chain import Run as Handle
from windlass.middleware.chain import chain
from windlass.middleware.logging import log_runs
from windlass.middleware.tracing import trace_runs
from windlass.observe.logs import get_logger
from windlass.observe.running import fields_of, running
from windlass.registry import Middleware, Registration, Registry, Target
from windlass.runtime.batches import Gathering
from windlass.steps import Means

log = get_logger("windlass.executor")
_DONE = Succeeded()
_PARKED = Asleep(due=None)
_UNDOING = Saga.UNDOING
"""By a name of ours, since an enum takes its time to tell its members."""


class Trade:
    """How the jobs of one kind are run here: what is around their handler, and what they share."""

    __slots__ = (
        "_decode", "_handle", "_has_secrets", "_is_at_home", "_means", "_site", "_undo",
        "registration", "target",
    )  # fmt: skip

    def __init__(
        self,
        registration: Registration,
        site: Site,
        means: Means | None,
        *,
        handle: Handle,
        undo: Handle,
        is_at_home: bool,
    ) -> None:
        self.registration = registration
        self.target = registration.target
        self._site = site
        self._means = means
        self._handle = handle
        self._undo = undo
        self._is_at_home = is_at_home
        self._decode = registration.target.codec.decode
        self._has_secrets = registration.target.codec.has_secrets

    def enter(self, job: Job, task: asyncio.Task[Any] | None) -> Context:
        """Make the context of a run that takes place in a task, and from now on the current one.

        Raises:
            PayloadInvalid: the payload is not what the handler takes.
        """
        context = Context(job, self._site, self._means)
        if self._is_at_home:
            context._home = task
        running.set(context)
        context.arguments = self._decode(job.payload, kind=job.kind)
        if self._has_secrets:
            context._learn(context.arguments)
        return context

    def run(self, context: Context) -> Awaitable[Any]:
        """Call the handler, or what undoes the steps of a job."""
        return (self._undo if context.job.saga is _UNDOING else self._handle)(context)


class Handlers:
    """The handlers with all middleware around them, put together once for each kind.

    `elsewhere` runs a call of a kind where a `def` handler does not block the event loop; `slots`
    says how many jobs can run at once, and so be gathered; `record` adds to the log of
    a job's steps.
    """

    def __init__(
        self,
        registry: Registry,
        middleware: Sequence[Middleware],
        elsewhere: Callable[[Callable[[], Any], Registration], Awaitable[Any]],
        site: Site,
        record: Callable[[Job, tuple[str, ...], Saga | None], Awaitable[None]],
        slots: Callable[[], int] = lambda: 1,
    ) -> None:
        self._registry = registry
        self._middleware = tuple(middleware)
        self._elsewhere = elsewhere
        self._site = site
        self._record = record
        self._slots = slots
        self._trades: dict[str, Trade] = {}
        self._gatherings: list[Gathering] = []

    def trade(self, kind: str) -> Trade:
        """Return how a kind is run.

        Raises:
            UnknownKind: it has no handler.
        """
        return self._trades.get(kind) or self._take_up(kind)

    def _take_up(self, kind: str) -> Trade:
        registration = self._registry[kind]
        trade = self._trades.get(registration.kind) or self._make(registration)
        self._trades[kind] = self._trades[registration.kind] = trade
        return trade

    def _make(self, registration: Registration) -> Trade:
        layers = (*self._middleware, *registration.middleware)
        is_called_here = registration.target.pool is Pool.LOOP and registration.batch is None
        # Other layers than these may put the handler into a task of its own.
        is_at_home = is_called_here and all(each in (log_runs, trace_runs) for each in layers)
        innermost = self._innermost(registration, is_at_home=is_at_home)
        handle = innermost
        if registration.identity.idempotent:
            handle = self._unless_done(registration, innermost)
        return Trade(
            registration,
            self._site,
            self._means(registration),
            handle=chain(layers, handle),
            undo=chain(layers, partial(undo, innermost)),
            is_at_home=is_at_home,
        )

    def _means(self, registration: Registration) -> Means | None:
        """Return what the steps of a kind need; None if it can have none."""
        if registration.batch is not None:
            return None
        return Means(
            record=self._record,
            elsewhere=lambda call: self._elsewhere(call, registration),
            cipher=registration.target.cipher,
            loop=asyncio.get_running_loop(),
            ordered=registration.limit is not None and registration.limit.ordered,
            store=self._site.done.store,
        )

    def gather_no_more(self) -> bool:
        """Run the batches that wait for more jobs with those that they have; say if any do."""
        return sum(gathering.go_early() for gathering in self._gatherings) > 0

    def _innermost(self, registration: Registration, *, is_at_home: bool) -> Handle:
        call, elsewhere = registration.target.call, self._elsewhere
        if is_at_home:
            return lambda context: call(context, context.arguments)
        if registration.batch is not None:
            gathering = Gathering(registration, registration.batch, elsewhere, self._slots)
            self._gatherings.append(gathering)
            return gathering
        if registration.target.pool is Pool.LOOP:

            async def in_task(context: Context) -> Any:
                context._home = asyncio.current_task()
                return await call(context, context.arguments)

            return in_task

        def in_thread(context: Context) -> Any:
            context._thread = threading.get_ident()
            return call(context, context.arguments)

        return lambda context: elsewhere(lambda: in_thread(context), registration)

    def _unless_done(self, registration: Registration, handle: Handle) -> Handle:
        """Return the stored result instead of running a job whose key was completed before."""

        async def run(context: Context) -> Any:
            # One that has begun goes on to its end: what it did is not what another one did.
            first = None if context.job.steps else await self._site.done.find(context.job)
            if first is None:
                return await handle(context)
            context.log.info("job.already_done", first=first.id, key=context.idempotency_key)
            return _stored_result(first, registration.target)

        return run


async def undo(handle: Handle, context: Context) -> Any:
    """Undo the steps of a job: its handler runs for the sake of its calls, then come the undos."""
    course = context._steps()
    error: BaseException | None = None
    if course.has_undos:
        try:
            await handle(context)
        except BaseException as raised:
            task = asyncio.current_task()
            if isinstance(raised, asyncio.CancelledError) and (task is None or task.cancelling()):
                raise
            error = raised
        if course.suspended is not None:
            error = None
    await course.compensate(error)


def refusal_of(job: Job) -> Outcome | None:
    """Return why a claimed job is not to run at all, if it is not.

    What is being undone is undone, however late it is and whoever wishes otherwise.
    """
    if job.saga is _UNDOING:
        return None
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


def outcome_of_error(
    error: BaseException, redaction: Redaction, context: Context | None = None
) -> Outcome:
    """Turn what a run raised into an outcome."""
    if (suspended := _suspended(context)) is not None:
        return suspended
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
        # Neither we nor the handler did that: the program around the worker is ending.
        return Released(reason="cancelled from outside")
    return Failed(exception=error, error=describe(error, redaction))


def outcome_of(context: Context, value: Any, target: Target) -> Outcome:
    """Turn what a handler returned into an outcome."""
    if value is None and context._course is None and not context.job.steps:
        return _DONE  # As most do.
    if (suspended := _suspended(context)) is not None:
        return suspended
    if context.settled:
        if value is not None:
            _warn_of_ignored_result(context)
        return _DONE
    match value:
        case None:
            return _end_of_steps(context) or _DONE
        case Snooze(due=due):
            return Snoozed(due=due)
        case Cancel(reason=reason):
            return Cancelled(reason=context.redaction.text(reason))
        case _:
            return _end_of_steps(context) or _result_of(context, value, target)


def _end_of_steps(context: Context) -> Outcome | None:
    """Return what is wrong with a handler that has left out steps which it had before."""
    try:
        context._end_steps()
    except StepError as error:
        return Failed(exception=error, error=describe(error, context.redaction))
    return None


def _suspended(context: Context | None) -> Outcome | None:
    """Return the end of a run that has ended itself, whatever its handler did after that."""
    if context is None or context._course is None or context._course.suspended is None:
        return None
    return context._course.suspended.outcome or _PARKED


def _stored_result(job: Job, target: Target) -> Any:
    """Return a result as its handler declares it; if it declares something else by now, as JSON."""
    if job.result is None:
        return None
    cipher = target.result_cipher
    sealing = None if cipher is None else Sealing(cipher, "result", job.kind)
    try:
        return decode_json(job.result, target.result, sealing=sealing)
    except (ValueError, NotImplementedError):
        return decode_json(job.result)


def _warn_of_ignored_result(context: Context) -> None:
    log.warning(
        "job.result_ignored",
        **fields_of(context.job),
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
