"""Owns the requests of operators to a worker: cancellations and pauses."""

from __future__ import annotations

from msgspec.structs import replace

from windlass.core.policies.pauses import PAUSES, Pauses
from windlass.handlers.registry import Registry
from windlass.observability.logs import get_logger
from windlass.process.service import PROBE_SECONDS, Service
from windlass.store import Store
from windlass.worker.engine.engine import Engine
from windlass.worker.state import WorkerState

log = get_logger("windlass.operator_requests")
_REQUESTS_SECONDS = 0.5


class OperatorRequests(Service):
    """Reads the requests of operators: jobs to cancel; queues, kinds and keys to pause."""

    name = "operator_requests"
    longest_backoff = PROBE_SECONDS

    def __init__(
        self,
        store: Store,
        engine: Engine,
        *,
        state: WorkerState,
        registry: Registry,
    ) -> None:
        super().__init__()
        self._store = store
        self._engine = engine
        self._state = state
        self._registry = registry
        self._wanted = store.capabilities.wakes
        self._listening: bool | None = None

    @property
    def listening(self) -> bool | None:
        """Whether wake-ups arrive; None where the store does not send any."""
        return bool(self._listening) if self._wanted else None

    async def tick(self) -> float:
        self._pause(Pauses.of(await self._store.records(PAUSES)))
        self._watch_wakeups()
        self._state.store_answered()
        if self._state.runs:
            for job_id in await self._store.cancel_requests(self._state.id):
                self._engine.cancel(job_id)
        return _REQUESTS_SECONDS

    def _pause(self, pauses: Pauses) -> None:
        # A kind is paused under each of its current and former names.
        names = {name for name in self._registry if self._registry[name].kind in pauses.kinds}
        pauses = replace(pauses, kinds=pauses.kinds | names)
        if pauses != self._state.policies.paused:
            log.info(
                "work.paused",
                queues=sorted(pauses.queues),
                kinds=sorted(pauses.kinds),
                keys=sorted(pauses.keys),
            )
            self._state.policies = replace(self._state.policies, paused=pauses)
            self._state.claim_again.set()

    def _watch_wakeups(self) -> None:
        """Log when wake-ups stop, since jobs then start later, and when they are back."""
        if self._outage.is_on:
            # Wake-ups cannot arrive while the store is unreachable, which was logged already.
            return
        listening = self._store.listening
        if listening != self._listening and self._listening is not None:
            if listening:
                log.info("wakeups.restored")
            else:
                log.warning(
                    "wakeups.lost", why="workers poll for new jobs until notifications arrive again"
                )
        if listening or self._listening is not None:
            self._listening = listening
