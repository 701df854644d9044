"""Owns a worker's life: it registers, serves until it is stopped, and ends by `shutdown`.

`assembly` makes its parts.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from uuid import UUID

from windlass.core.claims.plan import Policies
from windlass.core.claims.room import Pool
from windlass.core.errors import ConfigError
from windlass.core.schedules.definition import Schedule
from windlass.core.values.names import is_builtin
from windlass.handlers.provided import Providers
from windlass.handlers.registry import Middleware, Registry
from windlass.observability.log_handler import giving_way
from windlass.observability.logs import get_logger
from windlass.observability.meters import Meters, guarded
from windlass.process.fork_guard import guard, unguard
from windlass.process.outage import Outage
from windlass.process.service import Service
from windlass.process.supervisor_channel import Ready, SupervisorChannel
from windlass.store import Store
from windlass.worker.assembly import WorkerParts, WorkerSetup, assemble, loop_patience
from windlass.worker.engine.settler import Settler
from windlass.worker.hooks import Hooks, check_needs
from windlass.worker.isolation.child_pool import ChildPool
from windlass.worker.isolation.protocol import Recipe
from windlass.worker.options import WorkerOptions
from windlass.worker.policies.fair_weights import rotation_for
from windlass.worker.shutdown import Shutdown
from windlass.worker.state import WorkerState
from windlass.worker.store_arrival import Stopped, StoreArrival

log = get_logger("windlass.worker")


def _no_recipe() -> Recipe:
    raise ConfigError("this worker was made without a recipe for child processes")


class Worker:
    """One worker: `await worker.run()` serves until `worker.stop()`, and then drains.

    The first `stop()` lets running jobs finish within the shutdown timeout; a second one gives them
    back at once. The caller handles signals.
    """

    _parts: WorkerParts

    def __init__(
        self,
        *,
        store: Store,
        registry: Registry,
        options: WorkerOptions,
        middleware: Sequence[Middleware] = (),
        hooks: Hooks | None = None,
        providers: Providers | None = None,
        channel: SupervisorChannel | None = None,
        recipe: Callable[[], Recipe] = _no_recipe,
        schedules: Mapping[str, Schedule],
        ids: Callable[[], UUID],
        meters: Meters | None = None,
    ) -> None:
        self._store = store
        self._registry = registry
        self._options = options
        self._hooks = hooks or Hooks()
        self._outage = Outage()
        self._setup = WorkerSetup(
            store=store,
            registry=registry,
            options=options,
            middleware=middleware,
            providers=providers or Providers(),
            child_pool=ChildPool(options.isolated_processes, recipe),
            schedules=schedules,
            ids=ids,
            meters=guarded(meters or Meters()),
            settler=Settler(
                registry, max_retries=options.max_retries, max_crashes=options.max_crashes
            ),
            outage=self._outage,
        )
        policies = Policies(
            kinds=registry.pools(isolate=options.isolate),
            queues=options.queues,
            excluded=options.excluded,
            ordered=registry.ordered,
            targets=registry.targets(),
            rotation=rotation_for(registry),
        )
        self._state = WorkerState(policies, slots=options.concurrency.least, channel=channel)
        self.shutdown = Shutdown(self._setup, self._state, self._hooks)

    @property
    def id(self) -> str:
        """The id under which this worker holds its lease; after a lost lease it is a new one."""
        return self._state.id

    @property
    def processed(self) -> int:
        """Number of runs that have ended."""
        return self._state.processed

    @property
    def left_behind(self) -> int:
        """Number of handlers, and closings of provided, that still run after they were
        abandoned.
        """
        parts = self._parts
        return parts.threads.lost + self._state.runs.abandoned + parts.provided.left_behind

    @property
    def shutdown_timeout(self) -> timedelta:
        """How long running jobs may take to finish after `stop()`."""
        return self._options.shutdown_timeout

    def patience(self) -> timedelta | None:
        """Return how long the event loop may be blocked before the worker counts as stuck."""
        return loop_patience(self._registry, self._options)

    def stop(self) -> None:
        """Ask for a graceful end; the second time, for an immediate one."""
        if self._state.stopping.is_set():
            self.shutdown.hurry()
        self._state.stopping.set()

    async def run(self) -> None:
        """Serve until stopped. Being cancelled counts as being stopped: the worker still drains."""
        self._state.task = asyncio.current_task()
        self._assemble()
        try:
            await self._begin()
        except Stopped:
            log.info("worker.stopped", worker_id="", processed=0, why="stopped before it was ready")
            return
        # Objects that exist now live as long as the worker; the collector need not visit them every
        # few hundred jobs.
        gc.freeze()
        guard(asyncio.get_running_loop())
        tasks = self._parts.engine.tasks
        try:
            with giving_way(lambda: tasks.has_waiting):
                await self._state.stopping.wait()
        finally:
            gc.unfreeze()
            unguard(asyncio.get_running_loop())
            # Shielded: the cancellation that led here would abort the drain that answers it.
            await asyncio.shield(asyncio.ensure_future(self._end()))

    # -- the start ------------------------------------------------------------------------------

    def _assemble(self) -> None:
        self._outage.attach()
        if (channel := self._state.channel) is not None:
            channel.renewed = self._outage.rouse
        self._parts = assemble(self._setup, self._state)

    async def _begin(self) -> None:
        """Open what is provided, call the hooks, take a lease. If one step fails, undo the others.

        The store comes first: the provided values of an app are often on the same server.
        """
        hooks, provided = self._hooks, self._parts.provided
        arrival = StoreArrival(self._options.wait_for_store, self._state.stopping)
        check_needs(
            self._setup.providers,
            registry=self._registry,
            middleware=self._setup.middleware,
            hooks=(*hooks.on_start, *hooks.on_shutdown, *hooks.on_child_start),
        )
        await arrival.of(self._store.open)
        async with AsyncExitStack() as undo:
            undo.push_async_callback(provided.close)
            await provided.open()
            await hooks.start(provided)
            undo.push_async_callback(hooks.shut_down, provided)
            await self._check_isolated()
            await arrival.of(self._join)
            self._start()
            undo.pop_all()

    async def _join(self) -> None:
        """Take a lease, after reading which queues are paused: none of them is served
        for a moment.
        """
        await self._parts.requests.tick()
        await self._parts.lease.register()

    async def _check_isolated(self) -> None:
        """Refuse to serve isolated kinds if child processes cannot run them."""
        kinds, child_pool = self._state.policies.kinds, self._setup.child_pool
        if isolated := [kind for kind, pool in kinds.items() if pool is Pool.ISOLATED]:
            try:
                await child_pool.check(isolated)
            except BaseException:
                await child_pool.stop()
                raise

    def _services(self) -> list[Service]:
        """Return all services of this worker, in starting order."""
        parts, engine = self._parts, self._parts.engine
        return [
            engine.completer,
            engine.checkpointer,
            engine.streamer,
            engine.reporter,
            *parts.chores,
            *parts.scalers,
            *parts.gates,
            engine.claimer,
        ]

    def _start(self) -> None:
        parts, options = self._parts, self._options
        parts.status.serve()
        parts.threads.start()
        parts.heartbeat.start()
        for service in self._services():
            service.start(self._outage)
        log.info(
            "worker.started",
            worker_id=self.id,
            store=self._store.location,
            queues=sorted(options.queues or ()) or "all",
            excluded=sorted(options.excluded),
            queue_slots=dict(options.queue_slots),
            kinds=[kind for kind in sorted(self._state.policies.kinds) if not is_builtin(kind)],
            slots=str(options.concurrency),
            threads=options.threads,
            isolated_processes=options.isolated_processes,
        )
        self._state.tell_supervisor(Ready())

    # -- the end -------------------------------------------------------------------------------

    async def _end(self) -> None:
        try:
            await self.shutdown.run(self._parts)
        finally:
            # Even after an error: open values would keep the loop from ending.
            await self._parts.provided.close()
            await self._parts.status.close()
        log.info("worker.stopped", worker_id=self.id, processed=self.processed)
