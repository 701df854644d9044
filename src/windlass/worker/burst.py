"""Owns the end of a burst worker, which finishes the jobs that are waiting and then stops."""

from __future__ import annotations

from windlass.process.service import Service
from windlass.store import Store
from windlass.worker.engine.engine import Engine
from windlass.worker.services.bulk_operations import BulkOperations
from windlass.worker.services.outbox_relay import OutboxRelay
from windlass.worker.services.schedules.schedule_ticker import ScheduleTicker
from windlass.worker.state import WorkerState

_BUSY_POLL_SECONDS = 0.01
_LEFT_POLL_SECONDS = 0.05


class Burst(Service):
    """Ends the worker once no job runs here and no job that could run is waiting.

    Jobs that are due later do not count as waiting.
    """

    name = "burst"

    def __init__(
        self,
        store: Store,
        state: WorkerState,
        *,
        engine: Engine,
        relay: OutboxRelay,
        ticker: ScheduleTicker,
        bulk: BulkOperations,
    ) -> None:
        super().__init__()
        self._store = store
        self._state = state
        self._engine = engine
        self._relay = relay
        self._ticker = ticker
        self._bulk = bulk

    async def tick(self) -> float:
        processed = self._state.processed
        if self._is_busy():
            return _BUSY_POLL_SECONDS
        if await self._relay.is_anything_left() or await self._is_something_left():
            # The claimer may have found nothing, and may be asleep.
            self._state.claim_again.set()
            return _LEFT_POLL_SECONDS
        if self._is_busy() or self._state.processed != processed:
            # A job was claimed before it was seen to wait, and may wait again by now.
            return 0
        self._state.leave("no jobs are left", replace=False)
        return _LEFT_POLL_SECONDS

    def _is_busy(self) -> bool:
        others = self._relay.is_busy or self._bulk.is_busy
        return self._engine.is_busy or others or not self._ticker.has_looked

    async def _is_something_left(self) -> bool:
        # A fresh look: the cached lanes may be older than the end of the last run.
        sweep = await self._store.sweep(fresh=True, queues=self._state.policies.queues)
        is_due = sweep.next_due is not None and sweep.next_due <= sweep.now
        return is_due or any(self._state.policies.serves(head.lane) for head in sweep.heads)
