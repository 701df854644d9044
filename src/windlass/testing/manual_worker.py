"""Owns a worker that is driven by hand, for tests that move the store's clock.

Its parts are those of every worker, without the heartbeat and the pauses between two rounds of a
service.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any, Self

from msgspec.structs import replace

from windlass.core.claims.room import Pool
from windlass.core.workers import WorkerPulse
from windlass.process.service import Service
from windlass.process.waits import first
from windlass.worker.burst import Burst
from windlass.worker.policies.slot_scaler import SlotScaler
from windlass.worker.services.housekeeping import (
    AuditPruner,
    Pruner,
    SchemaWatch,
    UnservedKinds,
)
from windlass.worker.services.orphaned_claims import OrphanedClaims
from windlass.worker.services.rescuer import Rescuer
from windlass.worker.worker import Worker

_LEFT_OUT = (
    *(AuditPruner, Burst, OrphanedClaims, Pruner, Rescuer, SchemaWatch, SlotScaler),
    UnservedKinds,
)
"""Services for a fleet or a long life; none may delete jobs that a test looks at."""
_POLL_SECONDS = 0.02
"""Real seconds between two rounds while handlers run."""
_ROUND_SECONDS = 10.0
"""Real seconds that a round of a service may take."""
_MAX_TRIES = 3
"""How often a lane held back by a limit or breaker is tried: tokens arrive a round later."""
_SOON = timedelta(milliseconds=10)
_NO_LIMIT = 1_000_000
_RENEWAL = timedelta(seconds=1)


class ManualWorker(Worker):
    """A worker whose rounds the caller makes: `async with worker:`, `await work()`.

    Handlers run as usual, in real time; isolated ones run in this process, where the store is.
    Retries wait for the longest time that their policy allows, without jitter.

    It does not search for orphaned claims: a claim whose answer is lost raises the store's error
    from `work()`, and the end of the worker gives back its jobs. A worker that is not driven by
    hand goes on after such an error, and has to find them itself.
    """

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        pools = self._state.policies.kinds
        here = {kind: self._pool_here(kind, pool) for kind, pool in pools.items()}
        self._state.policies = replace(self._state.policies, kinds=here)
        self._setup.settler.jitter = lambda: 1.0
        self._rounds: list[Service] = []
        self._skipped = 0.0

    async def __aenter__(self) -> Self:
        """Start as every worker does."""
        self._assemble()
        self._parts.ticker.go_by_hand()
        for gate in self._parts.gates:
            gate.go_by(lambda: self._skipped)
        await self._begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End as every worker does."""
        self.stop()
        await self._end()

    async def work(self) -> int:
        """Run all jobs that are due, and those that follow from them; return the number of runs."""
        before = ended = self.processed
        await self._work_off()
        tries = _MAX_TRIES
        while tries and await self._is_something_left():
            tries = tries - 1 if self.processed == ended else _MAX_TRIES
            ended = self.processed
            await self._work_off()
        return self.processed - before

    async def next_at(self, *, alarms: bool = True) -> datetime | None:
        """Return the next time at which a job, alarm or policy becomes due, if known."""
        sweep = await self._store.sweep()
        times = [sweep.next_due]
        if alarms:
            times.append((await self._store.ringing(_NO_LIMIT)).next)
        if any(head.lane.kind in self._state.policies.kinds for head in sweep.heads):
            looks = [gate.looks_at() for gate in self._parts.gates]
            lefts = [timedelta(seconds=at - self._skipped) for at in looks if at is not None]
            times += [sweep.now + max(left, _SOON) for left in lefts]
        return min((at for at in times if at is not None and at > sweep.now), default=None)

    def moved(self, span: timedelta) -> None:
        """Follow a move of the store's clock, and renew the lease."""
        self._skipped += span.total_seconds()
        self._store.heartbeat(self.id, WorkerPulse(), _RENEWAL)

    def _pool_here(self, kind: str, pool: Pool) -> Pool:
        return self._registry[kind].target.pool if pool is Pool.ISOLATED else pool

    # -- the rounds ----------------------------------------------------------------------------

    def _start(self) -> None:
        self._parts.threads.start()
        for service in self._services():
            if service.prompted:
                service.start()
            elif not isinstance(service, _LEFT_OUT) and service is not self._parts.engine.claimer:
                self._rounds.append(service)

    async def _work_off(self) -> None:
        """Make rounds until one changes nothing: neither jobs, nor news, nor alarms."""
        known = None
        while (standing := await self._standing()) != known:
            known = standing
            await self._make_rounds()
            await self._serve()

    async def _standing(self) -> object:
        sweep, ringing = await self._store.sweep(), await self._store.ringing(_NO_LIMIT)
        topics = await self._store.topics(_NO_LIMIT)
        return self.processed, sweep.heads, sweep.next_due, topics, ringing.records, ringing.next

    async def _make_rounds(self) -> None:
        for service in self._rounds:
            try:
                async with asyncio.timeout(_ROUND_SECONDS):
                    await service.round()
            except TimeoutError:
                raise RuntimeError(
                    f"a round of the {service.name} has not ended after {_ROUND_SECONDS:g} s; a "
                    "service that waits for work must be `prompted`"
                ) from None

    async def _serve(self) -> None:
        """Start one job after the other, as slots come free, until none is left."""
        engine = self._parts.engine
        while True:
            while await engine.claimer.take_one():
                await self._let_begin()
            if engine.runs and not engine.executor.flush_batches():
                await self._wait_for_runs()
            elif engine.runs or not engine.completer.is_idle:
                await asyncio.sleep(0)
            else:
                await asyncio.sleep(0)  # Lets the gates record the settled jobs.
                return

    async def _let_begin(self) -> None:
        """Let a claimed job begin before the next one is claimed."""
        runs = self._state.runs
        while any(run.task is None for run in runs):  # noqa: ASYNC110 - it begins within the loop.
            await asyncio.sleep(0)

    async def _wait_for_runs(self) -> None:
        await first(self._parts.engine.claimer.wait_for_room(), patience=_POLL_SECONDS)
        if self._state.runs:
            await self._make_rounds()

    async def _is_something_left(self) -> bool:
        sweep = await self._store.sweep()
        return any(self._state.policies.serves(head.lane) for head in sweep.heads)
