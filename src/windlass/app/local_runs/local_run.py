"""Owns a run of a stored job in this process, with its real payload.

The handler does its work, as far as that is its own. Unless the run is to be settled, its steps,
its progress, its stream and its outcome stay here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from windlass.app.local_runs.lease import lease_of, take
from windlass.app.local_runs.records import Everything, Nothing, Records
from windlass.app.registration.importing import load_imports
from windlass.app.workers.options import worker_options
from windlass.app.workflows import flow as flows
from windlass.app.workflows import pipeline as pipelines
from windlass.core.errors import InvalidTransition, UnknownJob
from windlass.core.jobs.job import Job, Progress, Saga
from windlass.core.jobs.moves import Move, Verb, claimed, moved
from windlass.core.jobs.outcomes import Failed, Outcome
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import WAITING, State
from windlass.core.payloads.redaction import Redaction
from windlass.handlers.context import Context
from windlass.handlers.idempotency import DoneBefore
from windlass.handlers.parent_results import StoredParentResults
from windlass.handlers.provided import Provided
from windlass.handlers.run_environment import RunEnvironment
from windlass.handlers.streams import StreamEnvironment
from windlass.store import Store, store_of_job
from windlass.worker.engine.attempt_outcome import (
    flush_at_end,
    outcome_of,
    outcome_of_error,
    refusal_of,
)
from windlass.worker.engine.handler_runner import HandlerRunner, HandlerRunners
from windlass.worker.engine.settler import Settler
from windlass.worker.options import WorkerOptions

if TYPE_CHECKING:
    from windlass.app.app import Windlass

_NO_TOKEN = -1
"""The token of no lease: a store would reject whatever comes with it."""
_NAME = "here"
_MAY_RUN = (*WAITING, State.DEAD)
_FLUSH_SECONDS = 0.01


class LocalRun(Struct, frozen=True, kw_only=True):
    """How a run ended."""

    job: Job
    """The job as it ran, with the steps of earlier runs and of this one."""
    outcome: Outcome
    duration: timedelta
    redaction: Redaction
    """Masks what the run leaves behind: it knows the secrets among the arguments."""
    next: Transition | None
    """What a worker records then; None if the handler's transaction, or a wait for an event, does
    so."""
    recorded: bool = False
    """Whether that was recorded."""
    by_transaction: bool = False
    """Whether the handler's transaction completes the job."""
    streamed: int = 0
    """How many chunks it has streamed."""
    transactions: int = 0
    """How many transactions were rolled back."""

    @property
    def error(self) -> BaseException | None:
        """The exception of a run that failed."""
        return self.outcome.exception if isinstance(self.outcome, Failed) else None


async def run_here(
    app: Windlass,
    job_id: UUID,
    *,
    again: bool = False,
    settle: bool = False,
    progress: Callable[[Progress], None] = lambda _: None,
) -> LocalRun:
    """Run a job of the store in this process, and record nothing unless it is to be settled.

    Hooks and provided values of the app are as in a worker; timeouts, limits and breakers do not
    apply, and an isolated handler runs here, too. Only with `again`, a job that runs elsewhere, or
    that has not failed, is run. With `settle` the job is taken out of its queue, under a lease, and
    everything is recorded as by a worker; a dead job has a new life for that. `progress` is called
    with what the job reports.

    Raises:
        UnknownJob: there is no such job.
        UnknownKind: no handler is registered for it.
        InvalidTransition: its steps are being undone, it would do its work a second time, or it
            cannot be taken.
        LeaseLost: it was to be settled, and another worker has it by now.
    """
    load_imports(app.settings.imports)
    flows.register(app)
    pipelines.register(app)
    app.check_secrets()
    store = await store_of_job(app.store, job_id)
    job = await _found(app, store, job_id, again=again and not settle)
    options = worker_options(app.resolved, "", burst=True, embedded=True)
    async with Provided(app.providers) as provided:
        hooks = app.worker_hooks
        await hooks.start(provided)
        try:
            if not settle:
                seen = _as_claimed(job, (await store.sweep()).now)
                return await _run(app, Nothing(store), seen, options, provided, progress)
            async with lease_of(store, options) as worker:
                taken, records = await take(app, store, job, worker), Everything(store)
                if (refused := refusal_of(taken)) is not None:
                    return await _refuse(app, records, taken, options, refused)
                return await _run(app, records, taken, options, provided, progress)
        finally:
            await hooks.shut_down(provided)


async def _found(app: Windlass, store: Store, job_id: UUID, *, again: bool) -> Job:
    job = await store.get(job_id)
    if job is None:
        raise UnknownJob(job_id)
    if job.saga is Saga.UNDOING:
        remedy = "leave the undos to a worker, which records each of them"
        raise InvalidTransition(job_id, "being undone", "run it here", remedy)
    if job.state not in _MAY_RUN and not again:
        remedy = "it would do its work a second time; confirm that with --yes, without --settle"
        raise InvalidTransition(job_id, job.state, "run it here", remedy)
    app.registry[job.kind]  # Raises for a kind without a handler, before hooks are called.
    return job


def _as_claimed(job: Job, now: datetime) -> Job:
    """Return a job as its next run sees it; a dead one is redriven for that."""
    waiting = moved(job, Move(verb=Verb.REDRIVE, id=job.id), now) or job
    here = claimed(waiting, _NAME, _NO_TOKEN, now)
    return replace(here, waiting_for=None, cancel_requested=False)


async def _refuse(
    app: Windlass, records: Records, job: Job, options: WorkerOptions, outcome: Outcome
) -> LocalRun:
    """Record that a job does not run, because it was cancelled or has expired."""
    move = _settler(app, options).settle_job(job, outcome, timedelta(0))
    await records.settle(move)
    return LocalRun(
        job=job,
        outcome=outcome,
        duration=timedelta(0),
        redaction=options.redaction,
        next=move,
        recorded=True,
    )


def _settler(app: Windlass, options: WorkerOptions) -> Settler:
    retries, crashes = options.max_retries, options.max_crashes
    return Settler(app.registry, max_retries=retries, max_crashes=crashes)


async def _run(
    app: Windlass,
    records: Records,
    job: Job,
    options: WorkerOptions,
    provided: Provided,
    progress: Callable[[Progress], None],
) -> LocalRun:
    steps: list[str] = []

    async def record(job: Job, entries: tuple[str, ...], saga: Saga | None) -> None:
        await records.checkpoint(job, entries, saga)
        steps.extend(entries)

    environment = _environment(app, records, options, provided, progress)
    threads = _Threads()
    handlers = HandlerRunners(app.registry, app.layers, threads.run, environment, record)
    runner, settler = handlers.runner(job.kind), _settler(app, options)
    began = time.monotonic()
    flushing = asyncio.ensure_future(_flush(handlers, records))
    try:
        # In a task of its own, whose log context ends with it.
        context, outcome = await asyncio.create_task(_outcome(runner, job))
    except BaseException:
        await threads.end()
        await records.interrupted(job, settler, timedelta(seconds=time.monotonic() - began))
        raise
    finally:
        flushing.cancel()
    elapsed = timedelta(seconds=time.monotonic() - began)
    move = None
    if not context.run_state.is_over:
        move = settler.end(job, context.run_state.steps, outcome, elapsed)
        await records.settle(move)
    unrecorded = () if move is None else move.steps
    return LocalRun(
        job=replace(job, steps=(*job.steps, *steps, *unrecorded)),
        outcome=outcome,
        duration=elapsed,
        redaction=context.redaction,
        next=move,
        recorded=isinstance(records, Everything),
        by_transaction=context.run_state.settled,
        streamed=records.streamed.chunks,
        transactions=records.transactions,
    )


async def _outcome(runner: HandlerRunner, job: Job) -> tuple[Context, Outcome]:
    task = asyncio.current_task()
    context = runner.enter(job, task)
    outcome: Outcome
    try:
        value = await runner.run(context)
        outcome = outcome_of(context, value, runner.target)
    except BaseException as error:
        if task is not None and task.cancelling():
            raise  # Ctrl-C.
        outcome = outcome_of_error(error, context.redaction, context)
    if context.run_state.stream is not None:
        await flush_at_end(context)
    return context, outcome


class _Threads:
    """Runs `def` handlers in threads, and waits for those whose run was broken off."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, call: Callable[[], Any], _kind: object) -> Any:
        task = asyncio.create_task(asyncio.to_thread(_end_of, call))
        self._tasks.add(task)
        value, error = await asyncio.shield(task)
        if error is not None:
            raise error
        return value

    async def end(self) -> None:
        """Wait for the threads: a job that is given back must not run here any more."""
        if self._tasks:
            await asyncio.wait(self._tasks)


def _end_of(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """Return what a call returns, or the error by which it would end the program.

    A task that ends with such an error ends its event loop.
    """
    try:
        return call(), None
    except (SystemExit, KeyboardInterrupt) as error:
        return None, error


async def _flush(handlers: HandlerRunners, records: Records) -> None:
    """Let a batch run with its only job, and write the progress that was reported."""
    while True:
        handlers.flush_batches()
        await records.write_progress()
        await asyncio.sleep(_FLUSH_SECONDS)


def _environment(
    app: Windlass,
    records: Records,
    options: WorkerOptions,
    provided: Provided,
    progress: Callable[[Progress], None],
) -> RunEnvironment:
    loop = asyncio.get_running_loop()

    def report(job: Job, reported: Progress) -> None:
        progress(reported)
        records.report(job, reported)

    return RunEnvironment(
        report=report,
        transact=records.transact,
        done=DoneBefore(lambda: records.store, loop),
        results=StoredParentResults(lambda: records.store, app.registry, loop),
        streams=StreamEnvironment(append=records.append, loop=loop, limits=options.stream_limits),
        provided=provided,
        redaction=options.redaction,
        max_result=options.max_result,
    )
