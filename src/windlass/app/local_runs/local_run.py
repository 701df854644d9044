"""Owns a run of a stored job in this process, with its real payload, of which nothing is recorded.

The handler does its work, as far as that is its own; its steps, its progress, its stream and its
outcome stay here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from msgspec.structs import replace

from windlass.app.local_runs.unrecorded import RolledBack, UnrecordedStore
from windlass.app.registration.importing import load_imports
from windlass.app.workers.options import worker_options
from windlass.app.workflows import flow as flows
from windlass.app.workflows import pipeline as pipelines
from windlass.core.errors import InvalidTransition, UnknownJob
from windlass.core.jobs.job import Job, Progress, Saga
from windlass.core.jobs.moves import Move, Verb, moved
from windlass.core.jobs.outcomes import Failed, Outcome
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import WAITING, State
from windlass.core.jobs.streams import Appended, ChunkGroup
from windlass.core.payloads.redaction import Redaction
from windlass.handlers.context import Context
from windlass.handlers.idempotency import DoneBefore
from windlass.handlers.parent_results import StoredParentResults
from windlass.handlers.provided import Provided
from windlass.handlers.run_environment import RunEnvironment
from windlass.handlers.streams import StreamEnvironment
from windlass.store import Store, store_of_job
from windlass.worker.engine.attempt_outcome import flush_at_end, outcome_of, outcome_of_error
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


@dataclass(frozen=True, kw_only=True)
class LocalRun:
    """How a run ended."""

    job: Job
    """The job as it ran, with the steps of earlier runs and of this one."""
    outcome: Outcome
    duration: timedelta
    redaction: Redaction
    """Masks what the run leaves behind: it knows the secrets among the arguments."""
    next: Transition | None
    """What a worker would have recorded; None if the handler's transaction, or a wait for an event,
    would have done so."""
    streamed: int = 0
    """How many chunks it has streamed."""
    transactions: int = 0
    """How many transactions were rolled back."""

    @property
    def error(self) -> BaseException | None:
        """The exception of a run that failed."""
        return self.outcome.exception if isinstance(self.outcome, Failed) else None


@dataclass
class _Effects:
    """What the run would have written."""

    steps: list[str] = field(default_factory=list)
    streamed: Appended = field(default_factory=lambda: Appended(0, 0))
    transactions: int = 0


async def run_here(
    app: Windlass,
    job_id: UUID,
    *,
    again: bool = False,
    progress: Callable[[Progress], None] = lambda _: None,
) -> LocalRun:
    """Run a job of the store in this process, and record nothing.

    Hooks and provided values of the app are as in a worker; timeouts, limits and breakers do not
    apply, and an isolated handler runs here, too. Only with `again`, a job that runs elsewhere, or
    that has not failed, is run. `progress` is called with what the job reports.

    Raises:
        UnknownJob: there is no such job.
        UnknownKind: no handler is registered for it.
        InvalidTransition: its steps are being undone, or it would do its work a second time.
    """
    load_imports(app.settings.imports)
    flows.register(app)
    pipelines.register(app)
    app.check_secrets()
    store = await store_of_job(app.store, job_id)
    job = _as_claimed(await _found(app, store, job_id, again=again), (await store.sweep()).now)
    options = worker_options(app.resolved, "", burst=True, embedded=True)
    async with Provided(app.providers) as provided:
        hooks = app.worker_hooks
        await hooks.start(provided)
        try:
            return await _run(app, store, job, options, provided, progress)
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
        remedy = "it would do its work a second time; confirm that with --yes"
        raise InvalidTransition(job_id, job.state, "run it here", remedy)
    app.registry[job.kind]  # Raises for a kind without a handler, before hooks are called.
    return job


def _as_claimed(job: Job, now: datetime) -> Job:
    """Return a job as its next run sees it; a dead one is redriven for that."""
    waiting = moved(job, Move(verb=Verb.REDRIVE, id=job.id), now) or job
    return replace(
        waiting,
        state=State.RUNNING,
        attempt=job.attempt + 1,
        started_at=now,
        worker=_NAME,
        token=_NO_TOKEN,
        waiting_for=None,
        cancel_requested=False,
        progress=None,
    )


async def _run(
    app: Windlass,
    store: Store,
    job: Job,
    options: WorkerOptions,
    provided: Provided,
    progress: Callable[[Progress], None],
) -> LocalRun:
    effects = _Effects()
    environment = _environment(app, store, options, provided, progress, effects)

    async def record(_job: Job, entries: tuple[str, ...], _saga: Saga | None) -> None:
        effects.steps.extend(entries)

    handlers = HandlerRunners(
        app.registry,
        app.layers,
        lambda call, _kind: asyncio.to_thread(call),
        environment,
        record,
    )
    runner = handlers.runner(job.kind)
    began = time.monotonic()
    flushing = asyncio.ensure_future(_flush_batches(handlers))
    try:
        # In a task of its own, whose log context ends with it.
        context, outcome = await asyncio.create_task(_outcome(runner, job))
    finally:
        flushing.cancel()
    elapsed = timedelta(seconds=time.monotonic() - began)
    move = None
    if not context.run_state.is_over:
        settler = Settler(
            app.registry, max_retries=options.max_retries, max_crashes=options.max_crashes
        )
        move = settler.end(job, context.run_state.steps, outcome, elapsed)
    unrecorded = () if move is None else move.steps
    return LocalRun(
        job=replace(job, steps=(*job.steps, *effects.steps, *unrecorded)),
        outcome=outcome,
        duration=elapsed,
        redaction=context.redaction,
        next=move,
        streamed=effects.streamed.chunks,
        transactions=effects.transactions,
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


async def _flush_batches(handlers: HandlerRunners) -> None:
    """Let a batch run with its only job."""
    while True:
        handlers.flush_batches()
        await asyncio.sleep(_FLUSH_SECONDS)


def _environment(
    app: Windlass,
    store: Store,
    options: WorkerOptions,
    provided: Provided,
    progress: Callable[[Progress], None],
    effects: _Effects,
) -> RunEnvironment:
    loop = asyncio.get_running_loop()
    looking = cast("Store", UnrecordedStore(store))

    async def append(_job: Job, group: ChunkGroup) -> Appended:
        size = sum(map(len, group.chunks))
        effects.streamed = effects.streamed.plus(len(group.chunks), size)
        return effects.streamed

    def transact(settling: Transition) -> Any:
        effects.transactions += 1
        return RolledBack(store.transaction(settling))

    return RunEnvironment(
        report=lambda _job, reported: progress(reported),
        transact=transact,
        done=DoneBefore(lambda: looking, loop),
        results=StoredParentResults(lambda: looking, app.registry, loop),
        streams=StreamEnvironment(append=append, loop=loop, limits=options.stream_limits),
        provided=provided,
        redaction=options.redaction,
        max_result=options.max_result,
    )
