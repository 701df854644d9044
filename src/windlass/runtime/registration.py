"""Owns under which id a worker holds its lease, and how it comes by another when that is lost."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Callable, Mapping

from windlass.core.job import WorkerInfo
from windlass.core.plan import Pool
from windlass.observe.logs import get_logger
from windlass.runtime.options import WorkerOptions
from windlass.store import Store

log = get_logger("windlass.worker")


class Registration:
    """A worker's place in the store: an id while it has a lease, none while it has not."""

    def __init__(
        self,
        store: Store,
        options: WorkerOptions,
        kinds: Mapping[str, Pool],
        *,
        told: Callable[[str], None],
        is_stopping: Callable[[], bool],
    ) -> None:
        self._store = store
        self._options = options
        self._kinds = tuple(sorted(kinds))
        self._pools = {kind: pool.value for kind, pool in kinds.items() if pool is not Pool.LOOP}
        self._told = told
        self._is_stopping = is_stopping
        self._rebirth: asyncio.Task[None] | None = None
        self.id = ""

    async def register(self) -> None:
        """Take a lease, under an id that nobody had before."""
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
                kinds=self._kinds,
                pools=self._pools,
                threads=options.threads,
                children=options.children,
            )
        )
        # Only now: nobody may renew, or claim under, a lease that does not exist yet.
        self.id = fresh
        self._told(fresh)

    def lose(self) -> None:
        """Have no lease any more, and try to get another one until there is one."""
        self.id = ""
        self._rebirth = asyncio.ensure_future(self._register_again())

    async def _register_again(self) -> None:
        while not self._is_stopping():
            try:
                await self.register()
            except Exception:
                log.exception("register.failed")
                await asyncio.sleep(1)
            else:
                log.info("worker.registered_again", worker_id=self.id)
                return
