"""Owns a worker that works when it is told to: for a clock that only others move.

Its parts are those of every worker. Only what makes them move by themselves is left out: the
heartbeat, and the pauses between two rounds of a service.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Self

from windlass.core.job import Pulse
from windlass.core.plan import Pool
from windlass.runtime.burst import Burst
from windlass.runtime.chores import Census, Keeper, Pruner, Rescuer
from windlass.runtime.scaler import SlotScaler
from windlass.runtime.schema_watch import SchemaWatch
from windlass.runtime.service import Service
from windlass.runtime.waits import first
from windlass.runtime.worker import Worker

_LEFT_OUT = (Burst, Census, Keeper, Pruner, Rescuer, SchemaWatch, SlotScaler)
"""What looks after a fleet, or a long life; nobody is to lose what a test looks at."""
_GLANCE = 0.02
"""Seconds of real time between two rounds while handlers take theirs."""
_PATIENCE = 10.0
"""Seconds of real time that a round of a service may take."""
_TRIES = 3
"""How often what a limit or a breaker holds back is tried: it asks for leave, and gets it later."""
_SOON = timedelta(milliseconds=10)
_ALL = 1_000_000
_RENEWAL = timedelta(seconds=1)


class ByHand(Worker):
    """A worker whose rounds are made by whoever has it: `async with worker:`, `await work()`.

    Handlers run as they do anywhere, and take real time. Those that are isolated elsewhere run
    here, where the store is. Retries wait as long as their policy says at most, without jitter.
    """

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        pools = self._policies.kinds
        here = {kind: self._pool_here(kind, pool) for kind, pool in pools.items()}
        self._policies = replace(self._policies, kinds=here)
        self._judge.jitter = lambda: 1.0
        self._rounds: list[Service] = []
        self._skipped = 0.0

    async def __aenter__(self) -> Self:
        """Begin as every worker does."""
        self._assemble()
        for gate in self._works.each_gate:
            gate.go_by(lambda: self._skipped)
        await self._begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End as every worker does."""
        self.stop()
        await self._end()

    async def work(self) -> int:
        """Do all that is due, and all that comes of it; return how many runs that took."""
        before = ended = self.processed
        await self._work_off()
        tries = _TRIES
        while tries and await self._is_something_left():
            tries = tries - 1 if self.processed == ended else _TRIES
            ended = self.processed
            await self._work_off()
        return self.processed - before

    async def next_at(self, *, alarms: bool = True) -> datetime | None:
        """Return when something will be due that is not due yet, as far as is known."""
        sweep = await self._store.sweep()
        times = [sweep.next_due]
        if alarms:
            times.append((await self._store.ringing(_ALL)).next)
        if any(head.lane.kind in self._policies.kinds for head in sweep.heads):
            looks = [gate.looks_at() for gate in self._works.each_gate]
            lefts = [timedelta(seconds=at - self._skipped) for at in looks if at is not None]
            times += [sweep.now + max(left, _SOON) for left in lefts]
        return min((at for at in times if at is not None and at > sweep.now), default=None)

    def moved(self, span: timedelta) -> None:
        """Take notice that the store's clock was moved, and keep the lease."""
        self._skipped += span.total_seconds()
        self._store.heartbeat(self.id, Pulse(), _RENEWAL)

    def _pool_here(self, kind: str, pool: Pool) -> Pool:
        return self._registry[kind].target.pool if pool is Pool.CHILDREN else pool

    # -- the rounds ----------------------------------------------------------------------------

    def _start(self) -> None:
        self._threads.start()
        for service in self._services():
            if service.prompted:
                service.start()
            elif not isinstance(service, _LEFT_OUT) and service is not self._works.claimer:
                self._rounds.append(service)

    async def _work_off(self) -> None:
        """Make rounds until one changes nothing: neither jobs, nor news, nor alarms."""
        known = None
        while (standing := await self._standing()) != known:
            known = standing
            await self._make_rounds()
            await self._serve()

    async def _standing(self) -> object:
        sweep, ringing = await self._store.sweep(), await self._store.ringing(_ALL)
        topics = await self._store.topics(_ALL)
        return self.processed, sweep.heads, sweep.next_due, topics, ringing.records, ringing.next

    async def _make_rounds(self) -> None:
        for service in self._rounds:
            try:
                async with asyncio.timeout(_PATIENCE):
                    await service.round()
            except TimeoutError:
                raise RuntimeError(
                    f"a round of the {service.name} has not ended after {_PATIENCE:g} s; does it "
                    "wait for others to bring it work? Then it has to be `prompted`"
                ) from None

    async def _serve(self) -> None:
        """Start one job after the other, as there is room for them, until none is left."""
        works = self._works
        while True:
            while await works.claimer.take_one():
                await self._let_begin()
            if works.executor.runs and not works.executor.gather_no_more():
                await self._wait_for_runs()
            elif works.executor.runs or not works.completer.is_idle:
                await asyncio.sleep(0)
            else:
                await asyncio.sleep(0)  # Gates are told of what was settled.
                return

    async def _let_begin(self) -> None:
        """Let a job that was claimed come as far as it can, before the next one is."""
        runs = self._works.executor.runs
        while any(run.task is None for run in runs):  # noqa: ASYNC110 - it is its turn.
            await asyncio.sleep(0)

    async def _wait_for_runs(self) -> None:
        await first(self._works.claimer.wait_for_room(), patience=_GLANCE)
        if self._works.executor.runs:
            await self._make_rounds()

    async def _is_something_left(self) -> bool:
        sweep = await self._store.sweep()
        return any(self._policies.serves(head.lane) for head in sweep.heads)
