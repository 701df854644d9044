"""Owns a worker's life: register, serve, drain, retire. The parts that do the work are near it."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import secrets
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from windlass.core.bounds import Bounds
from windlass.core.job import Job, Pulse, Retention, WorkerInfo
from windlass.core.outcomes import Cancelled, Outcome, Released, Succeeded
from windlass.core.plan import Policies, Room
from windlass.core.retry import Retry
from windlass.core.scale import SLOTS_PACE
from windlass.core.settle import Policy, Transition, completed, give_up, settle
from windlass.core.states import State
from windlass.observe.logs import get_logger
from windlass.registry import Middleware, Registry
from windlass.runtime.chores import Census, Keeper, Orders, Pruner, Reporter, Rescuer
from windlass.runtime.claimer import Claimer
from windlass.runtime.completer import Completer, Settlement
from windlass.runtime.demand import Demand
from windlass.runtime.executor import HEED, Executor, Run
from windlass.runtime.gauges import CpuGauge
from windlass.runtime.heart import Heart
from windlass.runtime.lines import fields_of, log_settled
from windlass.runtime.scaler import SlotScaler
from windlass.runtime.service import Service
from windlass.runtime.threads import Threads
from windlass.store import Store

log = get_logger("windlass.worker")
_FLUSH = 2.0
_HOOK = 10.0
Hook = Callable[[], Awaitable[None] | None]


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """How a worker works."""

    name: str = ""
    release: str = ""
    queues: frozenset[str] | None = None
    slots: Bounds = field(default=Bounds.of(100))
    threads: int = 1
    batch_size: int = 100
    poll_interval: timedelta = timedelta(seconds=1)
    lease: timedelta = timedelta(seconds=30)
    shutdown_timeout: timedelta = timedelta(seconds=30)
    retention: Retention = field(default_factory=Retention)
    max_retries: int = 3
    timeout: timedelta = timedelta(seconds=300)


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """What the app wants to do around a worker's life."""

    on_start: Sequence[Hook] = ()
    on_shutdown: Sequence[Hook] = ()


class Worker:
    """One worker: `await worker.run()` serves until `worker.stop()`, and then drains.

    The first `stop()` lets running jobs finish within the shutdown timeout; a second one gives them
    back at once. Signals are the caller's affair.
    """

    def __init__(
        self,
        *,
        store: Store,
        registry: Registry,
        options: WorkerOptions,
        middleware: Sequence[Middleware] = (),
        hooks: Hooks | None = None,
    ) -> None:
        self._store = store
        self._registry = registry
        self._options = options
        self._middleware = middleware
        self._hooks = hooks or Hooks()
        self._policies = Policies(kinds=registry.pools(), queues=options.queues)
        self._id = ""
        self._retries: dict[str, Policy] = {}
        self._slots = options.slots.least
        self._processed = 0
        self._fenced = 0
        self._draining = False
        self._stop = asyncio.Event()
        self._stop_now = asyncio.Event()
        self._idle = asyncio.Event()

    @property
    def id(self) -> str:
        """The id under which this worker holds its lease; a lost lease brings a new one."""
        return self._id

    @property
    def processed(self) -> int:
        """How many runs have ended."""
        return self._processed

    @property
    def left_behind(self) -> int:
        """How many handlers still run, for all that is known, although nobody waits for them."""
        return self._threads.lost + self._executor.abandoned

    @property
    def shutdown_timeout(self) -> timedelta:
        """How long running jobs may take to finish after `stop()`."""
        return self._options.shutdown_timeout

    def stop(self) -> None:
        """Ask for a graceful end; the second time, for an immediate one."""
        if self._stop.is_set():
            self._stop_now.set()
        self._stop.set()

    async def run(self) -> None:
        """Serve until stopped. Being cancelled counts as being stopped: the worker still drains."""
        self._assemble()
        for hook in self._hooks.on_start:
            await self._call(hook)
        await self._store.open()
        await self._orders.tick()  # A queue that is paused already is not served for a moment.
        await self._register()
        self._start()
        # What there is now stays for as long as the worker; the collector need not look at it
        # every few hundred jobs.
        gc.freeze()
        try:
            await self._stop.wait()
        finally:
            gc.unfreeze()
            # Shielded: the cancellation that got us here would abort the drain that answers it.
            await asyncio.shield(asyncio.ensure_future(self._shut_down()))

    # -- the parts -----------------------------------------------------------------------------

    def _assemble(self) -> None:
        options, store = self._options, self._store
        self._threads = Threads(options.threads)
        self._reporter = Reporter(store, fenced=self._cancel_lost)
        self._completer = Completer(store, settled=self._log_settled, fenced=self._log_fenced)
        self._executor = Executor(
            registry=self._registry,
            middleware=self._middleware,
            threads=self._threads,
            worker_id=lambda: self._id,
            timeout=options.timeout,
            finish=self._finish,
            report=self._reporter.report,
            transact=store.transaction,
        )
        self._now = asyncio.get_running_loop().time
        self._cpu = CpuGauge()
        self._demand = Demand(lambda: len(self._executor.runs))
        self._claimer = Claimer(
            store,
            worker_id=lambda: self._id,
            policies=lambda: self._policies,
            room=self._room,
            start=self._start_job,
            demand=self._demand,
            batch_size=options.batch_size,
            poll_interval=options.poll_interval,
        )
        self._heart = Heart(
            store,
            lease=options.lease,
            patience=self._patience(),
            worker_id=lambda: self._id,
            pulse=self._pulse,
            lost=self._lose_lease,
        )
        self._assemble_chores()
        self._scalers: list[Service] = []
        if not options.slots.fixed:
            self._scalers = [
                SlotScaler(
                    options.slots,
                    SLOTS_PACE,
                    worker_id=lambda: self._id,
                    demand=self._demand,
                    processed=lambda: self._processed,
                    slots=lambda: self._slots,
                    scale=self._scale,
                )
            ]

    def _assemble_chores(self) -> None:
        options, store = self._options, self._store
        self._orders = Orders(
            store,
            worker_id=lambda: self._id,
            running=lambda: self._executor.runs.keys(),
            cancel=self._cancel,
            pause=self._pause,
        )
        self._keeper = Keeper(
            store,
            interval=options.lease / 3,
            worker_id=lambda: self._id,
            is_known=self._is_known,
            settle=self._completer.add,
        )
        self._chores: list[Service] = [
            self._orders,
            Rescuer(
                store,
                interval=options.lease / 3,
                worker_id=lambda: self._id,
                policy=self._policy,
                settle=self._completer.add,
            ),
            self._keeper,
            Pruner(store, options.retention),
            Census(store, known=self._policies.kinds),
        ]

    def _patience(self) -> timedelta | None:
        """Return how long a loop may stand still: no handler may take longer than this."""
        default = self._options.timeout
        timeouts = [self._registry[kind].timeout_or(default) for kind in self._registry]
        limits = [timeout for timeout in timeouts if timeout is not None]
        if len(limits) < len(timeouts):
            return None
        return max(limits, default=timedelta(0)) + HEED + self._options.lease

    async def _register(self) -> None:
        options = self._options
        host = socket.gethostname()
        name = options.name or f"{host}:{os.getpid()}"
        fresh = f"{name}:{secrets.token_hex(4)}"
        await self._store.register(
            WorkerInfo(
                id=fresh,
                name=name,
                host=host,
                pid=os.getpid(),
                release=options.release,
                lease=options.lease,
                slots=options.slots.most,
                least_slots=None if options.slots.fixed else options.slots.least,
                queues=tuple(sorted(options.queues or ())),
                kinds=tuple(sorted(self._policies.kinds)),
            )
        )
        # Only now: nobody may renew, or claim under, a lease that does not exist yet.
        self._id = fresh

    def _start(self) -> None:
        self._threads.start()
        self._heart.start()
        for service in (
            self._completer,
            self._reporter,
            *self._chores,
            *self._scalers,
            self._claimer,
        ):
            service.start()
        log.info(
            "worker.started",
            worker_id=self._id,
            store=self._store.location,
            queues=sorted(self._options.queues or ()) or "all",
            kinds=sorted(self._policies.kinds),
            slots=str(self._options.slots),
            threads=self._options.threads,
        )

    # -- one job's way through -----------------------------------------------------------------

    def _room(self) -> Room:
        slots = self._slots - len(self._executor.runs)
        return Room(slots=slots, threads=self._options.threads - self._executor.in_threads)

    def _start_job(self, job: Job) -> None:
        if self._draining:
            given_back = self._settle(job, Released(reason="shutdown"), timedelta(0))
            self._completer.add(job, given_back)
        else:
            self._idle.clear()
            self._executor.start(job)

    def _finish(self, run: Run, outcome: Outcome) -> None:
        if run.context is None or not run.context.settled:
            # One that its handler completed in a transaction is over, whatever came after that.
            self._completer.add(run.job, self._outcome_of(run, outcome))
        self._reporter.forget(run.job)
        self._processed += 1
        if self._scalers:
            self._demand.served += self._now() - run.began
        self._claimer.freed()
        if not self._executor.runs:
            self._idle.set()

    def _outcome_of(self, run: Run, outcome: Outcome) -> Transition:
        if isinstance(outcome, Succeeded):
            # Most jobs come this way, for which there is neither time nor chance to consider.
            return completed(run.job, outcome.result)
        elapsed = timedelta(seconds=asyncio.get_running_loop().time() - run.began)
        return self._settle(run.job, outcome, elapsed)

    def _settle(self, job: Job, outcome: Outcome, elapsed: timedelta) -> Transition:
        # The claim's time is the store's; what has passed since is ours to add.
        now = (job.started_at or job.due_at) + elapsed
        jitter = random.random()  # noqa: S311 - spreads retries, hides nothing.
        policy = self._policy(job)
        try:
            return settle(job, outcome, policy, now=now, jitter=jitter)
        except Exception:
            # A user's `when=`, or an exception of a user's that is not what it seems.
            log.exception("settle.failed", job_id=job.id, kind=job.kind)
        tolerant = replace(policy, retry=policy.retry.without_vetoes())
        try:
            return settle(job, outcome, tolerant, now=now, jitter=jitter)
        except Exception as error:
            log.exception("settle.failed", job_id=job.id, kind=job.kind)
            return give_up(job, error)

    def _policy(self, job: Job) -> Policy:
        policy = self._retries.get(job.kind)
        if policy is None:
            known = job.kind in self._registry
            retry = self._registry[job.kind].retry if known else Retry()
            policy = Policy(retry=retry, max_retries=self._options.max_retries)
            self._retries[job.kind] = policy
        return policy

    def _log_settled(self, settled: Settlement) -> None:
        """Log what is now in the store; a success, and a rescue, were logged before."""
        move = settled.transition
        if move.state is not State.COMPLETED and not (move.crashes and move.state is State.PENDING):
            log_settled(settled.job, settled.transition, worker_id=self._id)

    # -- what others make happen ---------------------------------------------------------------

    def _pulse(self) -> Pulse:
        return Pulse(
            state="draining" if self._draining else "running",
            processed=self._processed,
            running=len(self._executor.runs),
            slots=self._slots,
            busy=self._busy(),
            waiting=self._demand.waiting,
            cpu=round(self._cpu.read(), 3),
            fenced=self._fenced,
            listening=self._store.listening,
        )

    def _busy(self) -> float:
        slots = len(self._executor.runs) / self._options.slots.most
        return round(max(slots, self._executor.in_threads / self._options.threads), 3)

    def _scale(self, slots: int) -> None:
        self._slots = slots
        self._claimer.freed()

    def _pause(self, queues: frozenset[str]) -> None:
        if queues != self._policies.paused_queues:
            log.info("queues.paused", queues=sorted(queues))
            self._policies = replace(self._policies, paused_queues=queues)
            self._claimer.freed()

    def _cancel(self, job_id: UUID) -> None:
        self._executor.stop(job_id, Cancelled(reason="cancelled while it ran"))

    def _cancel_lost(self, job: Job) -> None:
        """Stop the run whose word came too late, but not the next one of the same job."""
        run = self._executor.runs.get(job.id)
        if run is not None and run.job.token == job.token:
            self._fenced += 1
            self._executor.stop(job.id, Released(reason="lease lost"))

    def _log_fenced(self, refused: Settlement) -> None:
        self._fenced += 1
        log.warning(
            "job.fenced",
            **fields_of(refused.job, self._id),
            outcome=refused.transition.state.value,
            why="another worker has the job, or it was settled before; nothing was changed",
        )

    def _lose_lease(self) -> None:
        """Give up every run, since others have the jobs by now, and begin anew under a new id."""
        for job_id in list(self._executor.runs):
            self._executor.stop(job_id, Released(reason="lease lost"))
        self._id = ""
        self._rebirth = asyncio.ensure_future(self._register_again())

    async def _register_again(self) -> None:
        while not self._stop.is_set():
            try:
                await self._register()
            except Exception:
                log.exception("register.failed")
                await asyncio.sleep(1)
            else:
                log.info("worker.registered_again", worker_id=self._id)
                return

    # -- the end -------------------------------------------------------------------------------

    async def _shut_down(self) -> None:
        self._draining = True
        log.info("worker.draining", worker_id=self._id, running=len(self._executor.runs))
        for scaler in self._scalers:
            await scaler.stop()
        await self._first(_FLUSH, self._claimer.stop(), self._stop_now.wait())
        await self._drain()
        await self._within(_FLUSH, self._completer.stop())
        for service in (self._reporter, *self._chores):
            await self._within(_FLUSH, service.stop())
        await self._within(_FLUSH, self._heart.stop())
        await self._within(_FLUSH, self._say_goodbye())
        self._threads.stop()
        for hook in self._hooks.on_shutdown:
            await self._within(_HOOK, self._call(hook))
        log.info("worker.stopped", worker_id=self._id, processed=self._processed)

    def _is_known(self, job: Job) -> bool:
        run = self._executor.runs.get(job.id)
        return (run is not None and run.job.token == job.token) or self._completer.has(job)

    async def _say_goodbye(self) -> None:
        """Give back what a lost claim may have left, tell the last counts, and end the lease."""
        for job in await self._store.held(self._id):
            self._keeper.give_back(job)
        await self._completer.flush()
        pulse, patience = self._pulse(), timedelta(seconds=_FLUSH)
        await asyncio.to_thread(self._store.heartbeat, self._id, pulse, patience)
        await self._store.retire(self._id)

    async def _drain(self) -> None:
        """Let runs end by themselves, then make them, then do without them."""
        patience = self._options.shutdown_timeout.total_seconds()
        if self._executor.runs:
            await self._first(patience, self._idle.wait(), self._stop_now.wait())
        for job_id in list(self._executor.runs):
            self._executor.stop(job_id, Released(reason="shutdown"))
        if self._executor.runs:
            await self._first(HEED.total_seconds(), self._idle.wait())
        self._executor.abandon()

    async def _first(self, patience: float, *events: Awaitable[Any]) -> None:
        tasks = [asyncio.ensure_future(event) for event in events]
        await asyncio.wait(tasks, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()

    async def _within(self, patience: float, step: Awaitable[Any]) -> None:
        """Take a step of the shutdown, but never let it keep the process from ending."""
        try:
            async with asyncio.timeout(patience):
                await step
        except Exception as error:  # noqa: BLE001 - what is left to do is more important.
            log.warning("shutdown.incomplete", error=f"{type(error).__qualname__}: {error}")

    async def _call(self, hook: Hook) -> None:
        answer = hook()
        if answer is not None:
            await answer
