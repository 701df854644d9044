"""Owns a worker's life: register, serve, drain, retire. The parts that do the work are near it."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from windlass.core.errors import ConfigError
from windlass.core.job import EVENT, FLOW, Pulse
from windlass.core.pauses import Pauses
from windlass.core.plan import Policies, Pool
from windlass.core.scale import SLOTS_PAUSES
from windlass.core.schedule import Schedule
from windlass.observe.guarded import guarded
from windlass.observe.lines import giving_way
from windlass.observe.logs import get_logger
from windlass.observe.meters import Meters
from windlass.registry import Middleware, Registry
from windlass.resources import Providers, Resources
from windlass.runtime.burst import Burst
from windlass.runtime.children import Children
from windlass.runtime.chores import Census, Keeper, Orders, Pruner, Rescuer
from windlass.runtime.chronicler import Chronicler
from windlass.runtime.clocks import ClockGauge
from windlass.runtime.courier import Courier
from windlass.runtime.events import Events
from windlass.runtime.executor import HEED
from windlass.runtime.fairness import rotation_for
from windlass.runtime.flows import Flows
from windlass.runtime.forks import guard, unguard
from windlass.runtime.gauges import CpuGauge
from windlass.runtime.heart import Heart
from windlass.runtime.hooks import Hooks
from windlass.runtime.judge import Judge
from windlass.runtime.leash import Leash, Leaving, Ready, Registered, Word
from windlass.runtime.needs import check_needs
from windlass.runtime.options import WorkerOptions
from windlass.runtime.registration import Registration
from windlass.runtime.sampler import Sampler
from windlass.runtime.scaler import SlotScaler
from windlass.runtime.schema_watch import SchemaWatch
from windlass.runtime.service import Service
from windlass.runtime.threads import Threads
from windlass.runtime.ticker import Ticker
from windlass.runtime.usage import resident
from windlass.runtime.vitals import Vitals
from windlass.runtime.waits import first, within
from windlass.runtime.words import Recipe
from windlass.runtime.works import Tally, Works
from windlass.store import Store

log = get_logger("windlass.worker")
_FLUSH = 2.0
_BEAT = timedelta(seconds=0.25)
"""How often a worker tells its supervisor that it lives."""


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
        schedules: Mapping[str, Schedule],
        ids: Callable[[], UUID],
        meters: Meters | None = None,
    ) -> None:
        self._meters = guarded(meters or Meters())
        self._leash = leash
        self._store = store
        self._registry = registry
        self._options = options
        self._middleware = middleware
        self._hooks = hooks or Hooks()
        self._providers = providers or Providers()
        self._recipe = recipe
        self._schedules = schedules
        self._ids = ids
        self._policies = Policies(
            kinds=registry.pools(isolate=options.isolate),
            queues=options.queues,
            excluded=options.excluded,
            ordered=registry.ordered,
            targets=registry.targets(),
            rotation=rotation_for(registry),
        )
        self._judge = Judge(
            registry, max_retries=options.max_retries, max_crashes=options.max_crashes
        )
        self._slots = options.slots.least
        self._tally = Tally()
        self._vitals = Vitals(store, options, self._meters, leash)
        self._stop = asyncio.Event()
        self._stop_now = asyncio.Event()
        self._registration = Registration(
            store,
            options,
            self._policies.kinds,
            told=self._registered,
            is_stopping=self._stop.is_set,
        )

    @property
    def id(self) -> str:
        """The id under which this worker holds its lease; a lost lease brings a new one."""
        return self._registration.id

    @property
    def processed(self) -> int:
        """How many runs have ended."""
        return self._tally.processed

    @property
    def left_behind(self) -> int:
        """How many handlers, and closings of resources, still run though nobody waits for them."""
        return self._threads.lost + self._works.executor.abandoned + self._resources.left_behind

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
            with giving_way(lambda: self._works.executor.has_more_to_start):
                await self._stop.wait()
        finally:
            gc.unfreeze()
            unguard(asyncio.get_running_loop())
            # Shielded: the cancellation that got us here would abort the drain that answers it.
            await asyncio.shield(asyncio.ensure_future(self._end()))

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

    # -- the parts -----------------------------------------------------------------------------

    def _assemble(self) -> None:
        options = self._options
        self._threads = Threads(options.threads, on_loss=self._mind_lost_threads)
        self._children = Children(options.children, self._recipe)
        self._resources = Resources(self._providers)
        self._cpu, self._clock = CpuGauge(), ClockGauge()
        self._events, self._flows = Events(self._store), Flows(self._store)
        self._courier = Courier(self._store, {FLOW: self._flows.hear, EVENT: self._events.hear})
        self._works = Works(
            self._store,
            registry=self._registry,
            middleware=self._middleware,
            options=options,
            judge=self._judge,
            tally=self._tally,
            meters=self._meters,
            asked=self._vitals.asked,
            threads=self._threads,
            children=self._children,
            resources=self._resources,
            worker_id=lambda: self.id,
            policies=lambda: self._policies,
            slots=lambda: self._slots,
            tell=self._courier.tell,
        )
        if self._works.gates:
            gates = self._works.gates
            self._policies = replace(
                self._policies,
                allowances=gates.allowances,
                lets=gates.lets,
                bars=gates.bars,
                unspent=gates.unspent,
            )
        self._heart = self._assemble_heart()
        self._assemble_chores()
        self._vitals.attach(
            self._works,
            self._heart,
            slots=lambda: self._slots,
            listening=lambda: self._orders.listening,
        )
        self._scalers = self._assemble_scalers()

    def _assemble_heart(self) -> Heart:
        lease, renew, leash = self._options.lease, self._vitals.renew, self._leash
        return Heart(
            renew if leash is None else leash.renewing(renew, lease),
            interval=lease / 3 if leash is None else _BEAT,
            # With a supervisor it is that who ends the process.
            patience=self.patience() if leash is None else None,
            worker_id=lambda: self.id,
            pulse=self._pulse,
            lost=self._lose_lease,
            looked=self._vitals.show,
        )

    def _assemble_scalers(self) -> list[Service]:
        options = self._options
        if options.slots.fixed:
            return []
        return [
            SlotScaler(
                options.slots,
                SLOTS_PAUSES,
                worker_id=lambda: self.id,
                demand=self._works.demand,
                processed=lambda: self._tally.processed,
                slots=lambda: self._slots,
                scale=self._scale,
            )
        ]

    def _assemble_chores(self) -> None:
        options, store, works = self._options, self._store, self._works
        self._orders = Orders(
            store,
            worker_id=lambda: self.id,
            is_busy=lambda: bool(works.executor.runs),
            cancel=works.cancel,
            pause=self._pause,
            asked=self._vitals.asked,
        )
        self._keeper = Keeper(
            store,
            interval=options.lease / 3,
            worker_id=lambda: self.id,
            is_known=works.is_known,
            settle=works.completer.add,
        )
        self._ticker = Ticker(
            store,
            kinds=self._policies.kinds,
            declared=self._schedules,
            ids=self._ids,
            others={EVENT: self._events.forget, FLOW: self._flows.forget},
            clock=self._clock,
            traces=options.traces,
        )
        works.ended = self._ticker.ended
        self._chores: list[Service] = [
            self._orders,
            self._ticker,
            Rescuer(
                store,
                interval=options.lease / 3,
                worker_id=lambda: self.id,
                policy=self._judge.policy,
                settle=works.completer.add,
            ),
            self._keeper,
            self._courier,
            Pruner(store, options.retention),
            Census(store, known=self._policies.kinds),
            SchemaWatch(store, outgrown=self._outgrown),
            Chronicler(store, lambda: self._meters.tallies),
            Sampler(store, worker_id=lambda: self.id, sampled=self._vitals.sampled),
        ]
        if works.watch:
            self._chores.append(works.watch)
        if options.burst:
            self._chores.append(self._burst())

    def _burst(self) -> Burst:
        return Burst(
            self._store,
            policies=lambda: self._policies,
            busy=lambda: (
                self._works.is_busy or self._courier.is_busy or not self._ticker.has_looked
            ),
            news=self._courier.is_anything_left,
            ended=lambda: self._tally.processed,
            rouse=self._works.claimer.freed,
            done=self._end_burst,
        )

    # -- the beginning -------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Open the resources, call the hooks, take a lease. If one step fails, undo the others."""
        hooks = self._hooks
        check_needs(
            self._providers,
            registry=self._registry,
            middleware=self._middleware,
            hooks=(*hooks.on_start, *hooks.on_shutdown, *hooks.on_child_start),
        )
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self._resources.close)
            await self._resources.open()
            await hooks.start(self._resources)
            undo.push_async_callback(hooks.shut_down, self._resources)
            await self._check_isolated()
            await self._store.open()
            await self._orders.tick()  # A queue that is paused already is not served for a moment.
            await self._registration.register()
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

    def _services(self) -> list[Service]:
        """Return all loops of this worker, in the order in which they start."""
        works = self._works
        return [
            works.completer,
            works.recorder,
            works.reporter,
            *self._chores,
            *self._scalers,
            *works.each_gate,
            works.claimer,
        ]

    def _start(self) -> None:
        self._vitals.serve()
        self._threads.start()
        self._heart.start()
        for service in self._services():
            service.start()
        log.info(
            "worker.started",
            worker_id=self.id,
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

    # -- what others make happen ---------------------------------------------------------------

    def _registered(self, worker: str) -> None:
        self._vitals.registered()
        self._tell(Registered(worker))

    def _tell(self, word: Word) -> None:
        if self._leash is not None:
            self._leash.say(word)

    def _pulse(self) -> Pulse:
        executor = self._works.executor
        return Pulse(
            state="draining" if self._works.draining else "running",
            processed=self._tally.processed,
            running=len(executor.runs),
            slots=self._slots,
            busy=self._busy(),
            in_threads=executor.in_threads,
            in_children=executor.in_children,
            waiting=self._works.demand.waiting,
            cpu=round(self._cpu.read(), 3),
            fenced=self._tally.fenced,
            listening=self._store.listening,
            metrics=self._vitals.address,
            clock_ahead=self._clock.ahead,
            memory=resident(os.getpid()) or None,
            pool=self._store.connections,
        )

    def _busy(self) -> float:
        executor = self._works.executor
        slots = len(executor.runs) / self._options.slots.most
        return round(max(slots, executor.in_threads / self._options.threads), 3)

    def _scale(self, slots: int) -> None:
        self._slots = slots
        self._works.claimer.freed()

    def _pause(self, pauses: Pauses) -> None:
        # A kind is paused under every name that it has, or had.
        names = {name for name in self._registry if self._registry[name].kind in pauses.kinds}
        pauses = replace(pauses, kinds=pauses.kinds | names)
        if pauses != self._policies.paused:
            log.info(
                "work.paused",
                queues=sorted(pauses.queues),
                kinds=sorted(pauses.kinds),
                keys=sorted(pauses.keys),
            )
            self._policies = replace(self._policies, paused=pauses)
            self._works.claimer.freed()

    def _mind_lost_threads(self, lost: int) -> None:
        """Begin anew in another process when threads that never return pile up; they cost memory.

        Without a supervisor there is nobody to begin anew.
        """
        supervised = self._leash is not None and self._leash.is_held
        if supervised and lost >= max(self._options.threads, 2) and not self._stop.is_set():
            log.warning("worker.recycling", worker_id=self.id, lost_threads=lost)
            self._tell(Leaving(f"{lost} threads are lost", replace=True))
            self.stop()

    def _outgrown(self, why: str) -> None:
        """Drain; whoever comes instead is of a newer release, or refuses to start, and says why."""
        if not self._stop.is_set():
            self._tell(Leaving(why, replace=True))
            self.stop()

    def _lose_lease(self) -> None:
        """Give up every run, since others have the jobs by now, and begin anew under a new id."""
        self._works.give_up("lease lost")
        self._registration.lose()

    # -- the end -------------------------------------------------------------------------------

    def _end_burst(self) -> None:
        self._tell(Leaving("nothing is left to do", replace=False))
        self._stop.set()

    async def _end(self) -> None:
        try:
            await self._shut_down()
        finally:
            # Whatever went wrong there: what is open keeps the loop from ending.
            await self._resources.close()
            await self._vitals.close()
        log.info("worker.stopped", worker_id=self.id, processed=self._tally.processed)

    async def _shut_down(self) -> None:
        works = self._works
        works.draining = True
        log.info("worker.draining", worker_id=self.id, running=len(works.executor.runs))
        for scaler in self._scalers:
            await scaler.stop()
        await first(works.claimer.stop(), self._stop_now.wait(), patience=_FLUSH)
        await works.drain(self._stop_now)
        works.cleaner.stop()
        await within(_FLUSH, works.completer.stop())
        for service in (works.recorder, works.reporter, *self._chores, *works.each_gate):
            await within(_FLUSH, service.stop())
        await within(_FLUSH, self._heart.stop())
        await within(_FLUSH, self._say_goodbye())
        await within(_FLUSH, self._children.stop())
        self._threads.stop()
        await self._hooks.shut_down(self._resources)

    async def _say_goodbye(self) -> None:
        """Give back what a lost claim may have left, tell the last counts, and end the lease."""
        for job in await self._store.held(self.id):
            self._keeper.give_back(job)
        await self._works.completer.flush()
        pulse, patience = self._pulse(), timedelta(seconds=_FLUSH)
        await asyncio.to_thread(self._store.heartbeat, self.id, pulse, patience)
        await self._store.retire(self.id)
        # Only now: what could not be given back, the supervisor gives back when we have ended.
        self._tell(Registered(""))
