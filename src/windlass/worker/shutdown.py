"""Owns what a worker does at SIGTERM: drain its runs, write their outcomes, give back its lease.

Every step has a limit, and all of them share a budget, so that the process ends by itself.
`cli/processes/signals.py` turns the signal into `Worker.stop()`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from datetime import timedelta

from windlass.observability.logs import get_logger
from windlass.process.grace_periods import WORKER_GRACE
from windlass.process.service import Service
from windlass.process.supervisor_channel import Registered
from windlass.process.waits import first, within
from windlass.worker.assembly import WorkerParts, WorkerSetup
from windlass.worker.hooks import Hooks
from windlass.worker.state import WorkerState

log = get_logger("windlass.worker")
_STEP_SECONDS = 2.0
"""Seconds that a step may take."""
_MIN_STEP_SECONDS = 0.2
_ALL_STEPS = WORKER_GRACE - timedelta(seconds=1)
"""Time that all steps may take beyond the shutdown timeout, so that the process ends by itself."""


class Shutdown:
    """The steps of a shutdown: a store that does not answer would use up the time of each."""

    def __init__(self, setup: WorkerSetup, state: WorkerState, hooks: Hooks) -> None:
        self._store = setup.store
        self._child_pool = setup.child_pool
        self._outage = setup.outage
        self._state = state
        self._hooks = hooks
        self._patience = (setup.options.shutdown_timeout + _ALL_STEPS).total_seconds()
        self._hurries = asyncio.Event()
        self._ends_by = 0.0
        self._step = "the start"

    def hurry(self) -> None:
        """Give running jobs back at once instead of letting them finish."""
        self._hurries.set()

    @property
    def waits_for(self) -> str:
        """The current step, with the store's error if it is unreachable."""
        trouble = self._outage.trouble
        why = f"; the store does not answer: {trouble}" if trouble else ""
        return f"the shutdown waits for {self._step}{why}"

    async def run(self, parts: WorkerParts) -> None:
        """Stop claiming, let running jobs finish, and end what the worker has started."""
        engine, state = parts.engine, self._state
        state.draining = True
        log.info("worker.draining", worker_id=state.id, running=len(state.runs))
        for scaler in parts.scalers:
            await scaler.stop()
        self._ends_by = time.monotonic() + self._patience
        self._step = "the claims under way"
        await first(engine.claimer.stop(), self._hurries.wait(), patience=_STEP_SECONDS)
        self._step = "the runs"
        await engine.drain(self._hurries)
        engine.cleaner.stop()
        await self._take("writing the last outcomes", engine.completer.stop())
        if unwritten := engine.completer.unwritten:
            log.error("outcomes.lost", jobs=unwritten, effect="these jobs will run again")
        # Together: each may wait for a store that does not answer, and the process has to end.
        writers: list[Service] = [engine.checkpointer, engine.streamer, engine.reporter]
        rest = (*writers, *parts.chores, *parts.gates)
        await asyncio.gather(*(self._take(f"the {each.name}", each.stop()) for each in rest))
        await self._take("the heart", parts.heartbeat.stop())
        await self._take("giving back the lease", self._retire(parts))
        await self._take("the child processes", self._child_pool.stop())
        parts.threads.stop()
        self._step = "the shutdown hooks"
        await self._hooks.shut_down(parts.provided)

    async def _take(self, step: str, work: Awaitable[object]) -> None:
        """Run a step; one that does not end in time is logged and abandoned."""
        self._step = step
        left = max(self._ends_by - time.monotonic(), _MIN_STEP_SECONDS)
        trouble = self._outage.trouble
        store = {"store": trouble} if trouble else {}
        await within(min(_STEP_SECONDS, left), step, work, **store)

    async def _retire(self, parts: WorkerParts) -> None:
        """Give back jobs that a lost claim may have left, store the last counts, end the lease."""
        worker = self._state.id
        for job in await self._store.held(worker):
            parts.orphans.give_back(job)
        await parts.engine.completer.flush()
        pulse, patience = parts.status.pulse(), timedelta(seconds=_STEP_SECONDS)
        await asyncio.to_thread(self._store.heartbeat, worker, pulse, patience)
        await self._store.retire(worker)
        # Only now: the supervisor gives back jobs that are left when this process has ended.
        self._state.tell_supervisor(Registered(""))
