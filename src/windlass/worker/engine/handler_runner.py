"""Owns how a handler is called, here or in a child: its middleware, and the meaning of its end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from windlass.core.claims.room import Pool
from windlass.core.failures.exceptions import is_a
from windlass.core.jobs.job import Job, Saga
from windlass.core.payloads.codec import decode_json
from windlass.core.payloads.secret import Sealing
from windlass.handlers.context import Context
from windlass.handlers.middleware.chain import Run as Handle
from windlass.handlers.middleware.chain import chain
from windlass.handlers.middleware.run_log import log_runs
from windlass.handlers.middleware.tracing import trace_runs
from windlass.handlers.middleware.watching import Watcher, around, watchers_in
from windlass.handlers.registry import Middleware, Registration, Registry
from windlass.handlers.run_environment import RunEnvironment
from windlass.handlers.steps import StepEnvironment
from windlass.handlers.target import Target
from windlass.observability.log_context import begin
from windlass.observability.logs import get_logger
from windlass.worker.engine.batches import BatchCollector, Elsewhere
from windlass.worker.engine.threads import with_thread_hooks

if TYPE_CHECKING:
    from windlass.worker.state import WorkerState

log = get_logger("windlass.executor")
_UNDOING = Saga.UNDOING
"""A module-level name, since a lookup on an enum is slow."""


class HandlerRunner:
    """How the jobs of one kind run: the middleware around their handler, and what they share."""

    __slots__ = (
        "_decode", "_handle", "_has_secrets", "_is_at_home", "_means", "_site", "_undo",
        "registration", "target", "watchers",
    )  # fmt: skip

    def __init__(
        self,
        registration: Registration,
        site: RunEnvironment,
        means: StepEnvironment | None,
        *,
        handle: Handle,
        undo: Handle,
        is_at_home: bool,
        watchers: tuple[Watcher, ...],
    ) -> None:
        self.registration = registration
        self.watchers = watchers
        self.target = registration.target
        self._site = site
        self._means = means
        self._handle = handle
        self._undo = undo
        self._is_at_home = is_at_home
        self._decode = registration.target.codec.decode
        self._has_secrets = registration.target.codec.has_secrets

    def enter(self, job: Job, task: asyncio.Task[Any] | None) -> Context:
        """Make the context of a run in this task, and make it the current one."""
        context = Context(job, self._site, self._means)
        if self._is_at_home:
            context.run_state.main_task = task
        begin(context)
        return context

    def run(self, context: Context) -> Awaitable[Any]:
        """Call the handler, or the undo functions of the job's steps.

        Raises: PayloadInvalid: the payload does not fit the handler's parameters.
        """
        job = context.job
        context.arguments = self._decode(job.payload, kind=job.kind)
        if self._has_secrets:
            context.run_state.mask_secrets_in(context.arguments)
        return (self._undo if job.saga is _UNDOING else self._handle)(context)


class HandlerRunners:
    """The handlers with their middleware, composed once per kind.

    `elsewhere` runs a `def` handler where it does not block the event loop; `record` adds to the
    step log of a job. `state` is None in a child process, which runs one job at a time.
    """

    def __init__(
        self,
        registry: Registry,
        middleware: Sequence[Middleware],
        elsewhere: Elsewhere,
        site: RunEnvironment,
        record: Callable[[Job, tuple[str, ...], Saga | None], Awaitable[None]],
        state: WorkerState | None = None,
    ) -> None:
        self._registry = registry
        self._middleware = tuple(middleware)
        self._elsewhere: Elsewhere = lambda call, kind: elsewhere(
            with_thread_hooks(call, registry), kind
        )
        self._site = site
        self._record = record
        self._state = state
        self.known: dict[str, HandlerRunner] = {}
        """The runners that were made, by kind and alias."""
        self._collectors: list[BatchCollector] = []

    def runner(self, kind: str) -> HandlerRunner:
        """Return the runner of a kind.

        Raises: UnknownKind: no handler is registered for it.
        """
        return self.known.get(kind) or self._add_runner(kind)

    def is_watched(self, kind: str) -> bool:
        """Return whether callbacks are registered for the ends of a kind's runs."""
        return kind in self._registry and bool(self.runner(kind).watchers)

    def _add_runner(self, kind: str) -> HandlerRunner:
        registration = self._registry[kind]
        runner = self.known.get(registration.kind) or self._make(registration)
        self.known[kind] = self.known[registration.kind] = runner
        return runner

    def _make(self, registration: Registration) -> HandlerRunner:
        given = (*self._middleware, *registration.middleware)
        layers = around(given)
        is_called_here = registration.target.pool is Pool.LOOP and registration.batch is None
        # Other middleware may run the handler in a task of its own.
        is_at_home = is_called_here and all(each in (log_runs, trace_runs) for each in layers)
        innermost = self._innermost(registration, is_at_home=is_at_home)
        handle = innermost
        if registration.identity.idempotent:
            handle = self._unless_done(registration, innermost)
        return HandlerRunner(
            registration,
            self._site,
            self._means(registration),
            handle=chain(layers, handle),
            undo=chain(layers, partial(undo, innermost)),
            is_at_home=is_at_home,
            watchers=watchers_in(given),
        )

    def _means(self, registration: Registration) -> StepEnvironment | None:
        """Return the services that the steps of a kind need; None if the kind has no steps."""
        if registration.batch is not None:
            return None
        return StepEnvironment(
            record=self._record,
            elsewhere=lambda call: self._elsewhere(call, registration),
            cipher=registration.target.cipher,
            loop=asyncio.get_running_loop(),
            ordered=registration.limit is not None and registration.limit.ordered,
            store=self._site.done.store,
        )

    def flush_batches(self) -> bool:
        """Run the batches that wait for more jobs now; return whether there were any."""
        return sum(collector.flush() for collector in self._collectors) > 0

    def _innermost(self, registration: Registration, *, is_at_home: bool) -> Handle:
        target, elsewhere = registration.target, self._elsewhere
        call = target.call if target.dependencies is None else target.call_here
        if is_at_home:
            return lambda context: call(context, context.arguments)
        if registration.batch is not None:
            collector = BatchCollector(registration, registration.batch, elsewhere, self._state)
            self._collectors.append(collector)
            return collector
        if target.pool is Pool.LOOP:

            async def in_task(context: Context) -> Any:
                context.run_state.main_task = asyncio.current_task()
                return await call(context, context.arguments)

            return in_task

        def in_thread(context: Context, call: Callable[[], Any]) -> Any:
            context.run_state.thread_id = threading.get_ident()
            return call()

        return lambda context: target.call_elsewhere(
            context,
            context.arguments,
            lambda call: elsewhere(lambda: in_thread(context, call), registration),
        )

    def _unless_done(self, registration: Registration, handle: Handle) -> Handle:
        """Return a handler that returns the stored result if the job's idempotency key was
        completed.
        """

        async def run(context: Context) -> Any:
            # A job that has recorded steps continues to its end: its steps are not those of another
            # job.
            first = None if context.job.steps else await self._site.done.find(context.job)
            if first is None:
                return await handle(context)
            context.log.info("job.already_done", first=first.id, key=context.idempotency_key)
            return _stored_result(first, registration.target)

        return run


async def undo(handle: Handle, context: Context) -> Any:
    """Undo the steps of a job: run its handler to reach its calls, then run the undo functions."""
    course = context.run_state.start_steps()
    error: BaseException | None = None
    if course.has_undos:
        try:
            await handle(context)
        except BaseException as raised:
            task = asyncio.current_task()
            if is_a(raised, asyncio.CancelledError) and (task is None or task.cancelling()):
                raise
            error = raised
        if course.suspended is not None:
            error = None
    await course.compensate(error)


def _stored_result(job: Job, target: Target) -> Any:
    """Return a stored result as the type that the handler declares now, or as JSON if it does not
    fit.
    """
    if job.result is None:
        return None
    cipher = target.result_cipher
    sealing = None if cipher is None else Sealing(cipher, "result", job.kind)
    try:
        return decode_json(job.result, target.result, sealing=sealing)
    except (ValueError, NotImplementedError):
        return decode_json(job.result)
