"""Owns the id under which a worker holds its lease, and its renewal after a loss."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket

from windlass.core.claims.room import Pool
from windlass.core.policies.limit import queue_limit
from windlass.core.workers import WorkerInfo
from windlass.handlers.registry import Registry
from windlass.observability.logs import get_logger
from windlass.process.outage import Outage, is_away
from windlass.process.waits import first
from windlass.store import Store
from windlass.worker.engine.engine import Engine
from windlass.worker.options import WorkerOptions
from windlass.worker.services.housekeeping import Pruner
from windlass.worker.services.schedules.schedule_ticker import ScheduleTicker
from windlass.worker.state import WorkerState

log = get_logger("windlass.worker")
_RETRY_SECONDS = 1.0


class Lease:
    """Registers a worker in the store, and again under a new id when its lease is lost."""

    def __init__(
        self,
        store: Store,
        options: WorkerOptions,
        state: WorkerState,
        *,
        registry: Registry,
        engine: Engine,
        ticker: ScheduleTicker,
        pruner: Pruner,
        outage: Outage,
    ) -> None:
        self._store = store
        self._options = options
        self._state = state
        self._engine = engine
        self._ticker = ticker
        self._pruner = pruner
        kinds = state.policies.kinds
        self._kinds = tuple(sorted(kinds))
        self._pools = {kind: pool.value for kind, pool in kinds.items() if pool is not Pool.LOOP}
        self._limits = {name: limit.info() for name, limit in registry.limits.items()}
        self._uses = _uses(registry)
        self._retries = {
            kind: registry[kind].retry.at_most(options.max_retries) for kind in self._kinds
        }
        self._outage = outage
        self._rebirth: asyncio.Task[None] | None = None

    async def register(self) -> None:
        """Take a lease, under a new id."""
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
                slots=options.concurrency.most,
                least_slots=None if options.concurrency.fixed else options.concurrency.least,
                queues=tuple(sorted(options.queues or ())),
                excluded=tuple(sorted(options.excluded)),
                queue_slots=dict(options.queue_slots),
                kinds=self._kinds,
                pools=self._pools,
                threads=options.threads,
                isolated_processes=options.isolated_processes,
                limits=self._limits,
                uses=self._uses,
                retries=self._retries,
            )
        )
        # Only now: a lease that does not exist yet can be neither renewed nor used for claims.
        self._state.registered(fresh)

    def lose(self) -> None:
        """Give up every run, since other workers have the jobs, and register under a new id."""
        self._engine.release_all("lease lost")
        self._state.id = ""
        self._rebirth = asyncio.ensure_future(self._register_again())

    async def _register_again(self) -> None:
        while not self._state.stopping.is_set():
            try:
                await self.register()
            except Exception as error:
                if is_away(error):
                    self._outage.failed("registration", error)
                else:
                    log.exception("register.failed")
                await first(self._outage.answer(), patience=_RETRY_SECONDS)
            else:
                self._outage.answered("registration")
                log.info("worker.registered_again", worker_id=self._state.id)
                # If the store was emptied, everything is gone, schedules included.
                self._ticker.declare_again()
                self._pruner.rouse()
                return


def _uses(registry: Registry) -> dict[str, dict[str, int]]:
    """Return how much each kind takes of which limits, so that `why` can explain why a
    job waits.
    """
    of_queue = queue_limit("")
    taken = {kind: dict(registry.limited_by(kind, "")) for kind in registry}
    own = {
        kind: {name: amount for name, amount in each.items() if name != of_queue}
        for kind, each in taken.items()
    }
    return {kind: each for kind, each in own.items() if each}
