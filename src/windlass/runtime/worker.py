"""Owns a worker's life: register, serve, drain, retire. The parts that do the work are near it."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from windlass.core.bounds import Bounds
from windlass.core.error_classes import ErrorClass
from windlass.core.errors import ConfigError
from windlass.core.job import Job, Pulse, Retention, WorkerInfo
from windlass.core.outcomes import Cancelled, Outcome, Released, Succeeded
from windlass.core.plan import Policies, Pool, Room
from windlass.core.scale import SLOTS_PACE
from windlass.core.settle import Transition, completed
from windlass.core.states import State
from windlass.observe.logs import get_logger
from windlass.registry import Middleware, Registry
from windlass.resources import Providers, Resources
from windlass.runtime.burst import Burst
from windlass.runtime.children import Children
from windlass.runtime.chores import Census, Keeper, Orders, Pruner, Reporter, Rescuer
from windlass.runtime.claimer import Claimer
from windlass.runtime.cleaner import Cleaner
from windlass.runtime.completer import Completer, Settlement
from windlass.runtime.demand import Demand
from windlass.runtime.executor import HEED, Executor, Run
from windlass.runtime.forks import guard, unguard
from windlass.runtime.gates import Gates, gates_for
from windlass.runtime.gauges import CpuGauge
from windlass.runtime.heart import Heart
from windlass.runtime.judge import Judge
from windlass.runtime.leash import Leash, Leaving, Ready, Registered, Word
from windlass.runtime.lines import fields_of, log_settled
from windlass.runtime.needs import check_needs
from windlass.runtime.scaler import SlotScaler
from windlass.runtime.service import Service
from windlass.runtime.shares import Shares
from windlass.runtime.threads import Threads
from windlass.runtime.wire import Recipe
from windlass.store import DoneBefore, Store

log = get_logger("windlass.worker")
_FLUSH = 2.0
_PUT_OFF = 3.0
"""Seconds within which a suspect that was put off is claimed again."""
_BEAT = timedelta(seconds=0.25)
"""How often a worker tells its supervisor that it lives."""
_HOOK = 10.0
Hook = Callable[..., Awaitable[None] | None]


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """How a worker works."""

    name: str = ""
    release: str = ""
    queues: frozenset[str] | None = None
    excluded: frozenset[str] = frozenset()
    queue_slots: Mapping[str, int] = field(default_factory=dict)
    burst: bool = False
    slots: Bounds = field(default=Bounds.of(100))
    threads: int = 1
    children: int = 1
    isolate: bool = False
    batch_size: int = 100
    poll_interval: timedelta = timedelta(seconds=1)
    lease: timedelta = timedelta(seconds=30)
    shutdown_timeout: timedelta = timedelta(seconds=30)
    retention: Retention = field(default_factory=Retention)
    max_retries: int = 3
    max_crashes: int = 3
    timeout: timedelta = timedelta(seconds=300)


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """What the app wants to do around a worker's life."""

    on_start: Sequence[Hook] = ()
    on_shutdown: Sequence[Hook] = ()


def _no_recipe() -> Recipe:
    raise ConfigError("this worker was made without a recipe for child processes")


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
        providers: Providers | None = None,
        leash: Leash | None = None,
        recipe: Callable[[], Recipe] = _no_recipe,
    ) -> None:
        self._leash = leash
        self._store = store
        self._registry = registry
        self._options = options
        self._middleware = middleware
        self._hooks = hooks or Hooks()
        self._providers = providers or Providers()
        self._recipe = recipe
        self._gates = Gates(())
        self._policies = Policies(
            kinds=registry.pools(isolate=options.isolate),
            queues=options.queues,
            excluded=options.excluded,
        )
        self._shares = Shares(options.queue_slots)
        self._id = ""
        self._judge = Judge(
            registry, max_retries=options.max_retries, max_crashes=options.max_crashes
        )
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
        """How many handlers, and closings of resources, still run though nobody waits for them."""
        return self._threads.lost + self._executor.abandoned + self._resources.left_behind

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
        await self._begin()
        # What there is now stays for as long as the worker; the collector need not look at it
        # every few hundred jobs.
        gc.freeze()
        guard(asyncio.get_running_loop())
        try:
            await self._stop.wait()
        finally:
            gc.unfreeze()
            unguard(asyncio.get_running_loop())
            # Shielded: the cancellation that got us here would abort the drain that answers it.
            await asyncio.shield(asyncio.ensure_future(self._end()))

    async def _begin(self) -> None:
        """Open the resources, call the hooks, take a lease. If one step fails, undo the others."""
        hooks = self._hooks
        check_needs(
            self._providers,
            registry=self._registry,
            middleware=self._middleware,
            hooks=(*hooks.on_start, *hooks.on_shutdown),
        )
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self._resources.close)
            await self._resources.open()
            for hook in hooks.on_start:
                await self._call(hook)
            undo.push_async_callback(self._call_shutdown_hooks)
            await self._check_isolated()
            await self._store.open()
            await self._orders.tick()  # A queue that is paused already is not served for a moment.
            await self._register()
            self._start()
            undo.pop_all()

    async def _check_isolated(self) -> None:
        """Refuse to serve kinds that are to run in children, and could not."""
        isolated = [kind for kind, pool in self._policies.kinds.items() if pool is Pool.CHILDREN]
        if isolated:
            try:
                await self._children.check(isolated)
            except BaseException:
                await self._children.stop()
                raise

    # -- the parts -----------------------------------------------------------------------------

    def _assemble(self) -> None:
        options, store = self._options, self._store
        self._threads = Threads(options.threads, on_loss=self._mind_lost_threads)
        self._children = Children(options.children, self._recipe)
        self._resources = Resources(self._providers)
        self._cleaner = Cleaner()
        self._reporter = Reporter(store, fenced=self._cancel_lost)
        self._completer = Completer(store, settled=self._log_settled, fenced=self._log_fenced)
        self._executor = Executor(
            registry=self._registry,
            middleware=self._middleware,
            pools=self._policies.kinds,
            threads=self._threads,
            children=self._children,
            worker_id=lambda: self._id,
            timeout=options.timeout,
            finish=self._finish,
            report=self._reporter.report,
            transact=store.transaction,
            done=DoneBefore(lambda: store, asyncio.get_running_loop()),
            resources=self._resources,
        )
        self._now = asyncio.get_running_loop().time
        self._cpu = CpuGauge()
        self._demand = Demand(lambda: len(self._executor.runs))
        self._each_gate = gates_for(
            self._registry, store, worker_id=lambda: self._id, rouse=lambda: self._claimer.freed()
        )
        self._gates = Gates(self._each_gate)
        if self._gates:
            self._policies = replace(self._policies, allowances=self._gates.allowances)
        self._claimer = Claimer(
            store,
            worker_id=lambda: self._id,
            policies=lambda: self._policies,
            room=self._room,
            bite=lambda: self._executor.bite,
            start=self._start_job,
            gates=self._gates,
            demand=self._demand,
            batch_size=options.batch_size,
            poll_interval=options.poll_interval,
        )
        self._heart = self._assemble_heart()
        self._assemble_chores()
        self._scalers = self._assemble_scalers()

    def _assemble_heart(self) -> Heart:
        lease, renew, leash = self._options.lease, self._store.heartbeat, self._leash
        return Heart(
            renew if leash is None else leash.renewing(renew, lease),
            interval=lease / 3 if leash is None else _BEAT,
            # With a supervisor it is that who ends the process.
            patience=self.patience() if leash is None else None,
            worker_id=lambda: self._id,
            pulse=self._pulse,
            lost=self._lose_lease,
        )

    def _assemble_scalers(self) -> list[Service]:
        options = self._options
        if options.slots.fixed:
            return []
        return [
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
                policy=self._judge.policy,
                settle=self._completer.add,
            ),
            self._keeper,
            Pruner(store, options.retention),
            Census(store, known=self._policies.kinds),
        ]
        if options.burst:
            self._chores.append(self._burst())

    def _burst(self) -> Burst:
        return Burst(
            self._store,
            policies=lambda: self._policies,
            busy=self._is_busy,
            ended=lambda: self._processed,
            rouse=self._claimer.freed,
            done=self._end_burst,
        )

    def _is_busy(self) -> bool:
        """Say whether anything of ours runs, is on its way, or was put off for a moment."""
        put_off = self._now() - self._executor.put_off_at < _PUT_OFF
        on_its_way = self._claimer.is_claiming or not self._completer.is_idle
        return bool(self._executor.runs) or on_its_way or put_off

    def _end_burst(self) -> None:
        self._tell(Leaving("nothing is left to do", replace=False))
        self._stop.set()

    def patience(self) -> timedelta | None:
        """Return how long a loop may stand still: no handler may take longer than this."""
        default = self._options.timeout
        timeouts = [self._registry[kind].timeout_or(default) for kind in self._registry]
        limits = [timeout for timeout in timeouts if timeout is not None]
        if len(limits) < len(timeouts):
            return None
        graces = [self._registry[kind].grace_or(HEED) for kind in self._registry]
        longest = max(limits, default=timedelta(0)) + max(graces, default=HEED)
        return longest + self._options.lease

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
                excluded=tuple(sorted(options.excluded)),
                queue_slots=dict(options.queue_slots),
                kinds=tuple(sorted(self._policies.kinds)),
            )
        )
        # Only now: nobody may renew, or claim under, a lease that does not exist yet.
        self._id = fresh
        self._tell(Registered(fresh))

    def _tell(self, word: Word) -> None:
        if self._leash is not None:
            self._leash.say(word)

    def _start(self) -> None:
        self._threads.start()
        self._heart.start()
        for service in (
            self._completer,
            self._reporter,
            *self._chores,
            *self._scalers,
            *self._each_gate,
            self._claimer,
        ):
            service.start()
        log.info(
            "worker.started",
            worker_id=self._id,
            store=self._store.location,
            queues=sorted(self._options.queues or ()) or "all",
            excluded=sorted(self._options.excluded),
            queue_slots=dict(self._options.queue_slots),
            kinds=sorted(self._policies.kinds),
            slots=str(self._options.slots),
            threads=self._options.threads,
            children=self._options.children,
        )
        self._tell(Ready())

    # -- one job's way through -----------------------------------------------------------------

    def _room(self) -> Room:
        options, executor = self._options, self._executor
        return Room(
            slots=self._slots - len(executor.runs),
            threads=options.threads - executor.in_threads,
            children=options.children - executor.in_children,
            queues=self._shares.free,
        )

    def _start_job(self, job: Job) -> None:
        if self._draining:
            given_back = self._judge.settle(job, Released(reason="shutdown"), timedelta(0))
            self._completer.add(job, given_back)
        else:
            self._idle.clear()
            if self._shares:
                self._shares.take(job.queue)
            if self._gates:
                self._gates.began(job)
            self._executor.start(job)

    def _finish(self, run: Run, outcome: Outcome | Transition) -> None:
        if not run.over and (run.context is None or not run.context.settled):
            # One that its handler completed in a transaction is over, whatever came after that.
            self._completer.add(run.job, self._outcome_of(run, outcome))
        self._reporter.forget(run.job)
        if run.task is not None:  # What never began was not processed.
            self._processed += 1
        if self._shares:
            self._shares.give(run.job.queue)
        if self._gates:
            self._gates.ended(run.job, outcome)
        if self._scalers:
            self._demand.served += self._now() - run.began
        self._claimer.freed()
        if not self._executor.runs:
            self._idle.set()

    def _outcome_of(self, run: Run, outcome: Outcome | Transition) -> Transition:
        if isinstance(outcome, Succeeded):
            # Most jobs come this way, for which there is neither time nor chance to consider.
            return completed(run.job, outcome.result)
        if isinstance(outcome, Transition):
            return outcome  # Settled where the exception was, which cannot travel.
        elapsed = timedelta(seconds=asyncio.get_running_loop().time() - run.began)
        move = self._judge.settle(run.job, outcome, elapsed)
        if move.error is not None and move.error.error_class is ErrorClass.RESOURCE:
            self._cleaner.ask()
        return move

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

    def _mind_lost_threads(self, lost: int) -> None:
        """Begin anew in another process when threads that never return pile up; they cost memory.

        Without a supervisor there is nobody to begin anew.
        """
        supervised = self._leash is not None and self._leash.is_held
        if supervised and lost >= max(self._options.threads, 2) and not self._stop.is_set():
            log.warning("worker.recycling", worker_id=self._id, lost_threads=lost)
            self._tell(Leaving(f"{lost} threads are lost", replace=True))
            self.stop()

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

    async def _end(self) -> None:
        try:
            await self._shut_down()
        finally:
            # Whatever went wrong there: what is open keeps the loop from ending.
            await self._resources.close()
        log.info("worker.stopped", worker_id=self._id, processed=self._processed)

    async def _shut_down(self) -> None:
        self._draining = True
        log.info("worker.draining", worker_id=self._id, running=len(self._executor.runs))
        for scaler in self._scalers:
            await scaler.stop()
        await self._first(_FLUSH, self._claimer.stop(), self._stop_now.wait())
        await self._drain()
        self._cleaner.stop()
        await self._within(_FLUSH, self._completer.stop())
        for service in (self._reporter, *self._chores, *self._each_gate):
            await self._within(_FLUSH, service.stop())
        await self._within(_FLUSH, self._heart.stop())
        await self._within(_FLUSH, self._say_goodbye())
        await self._within(_FLUSH, self._children.stop())
        self._threads.stop()
        await self._call_shutdown_hooks()

    async def _call_shutdown_hooks(self) -> None:
        for hook in self._hooks.on_shutdown:
            name = getattr(hook, "__qualname__", repr(hook))
            await self._within(_HOOK, self._call(hook), hook=name)

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
        # Only now: what could not be given back, the supervisor gives back when we have ended.
        self._tell(Registered(""))

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

    async def _within(self, patience: float, step: Awaitable[Any], **fields: object) -> None:
        """Take a step of the shutdown, but never let it keep the process from ending."""
        try:
            async with asyncio.timeout(patience):
                await step
        except Exception as error:  # noqa: BLE001 - what is left to do is more important.
            told = f"{type(error).__qualname__}: {error}"
            log.warning("shutdown.incomplete", error=told, **fields)

    async def _call(self, hook: Hook) -> None:
        answer = hook(**self._resources.given(hook))
        if inspect.isawaitable(answer):
            await answer
