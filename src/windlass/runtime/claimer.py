"""Owns the loop that looks for work, plans what to take, and starts it; never more than fits."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from windlass.core.job import Claim, Job, Sweep
from windlass.core.plan import Policies, Room, plan
from windlass.runtime.service import Service
from windlass.store import Store

_PROMOTED_AT_ONCE = 1_000
_EMPTY_HANDED = 0.005


class Claimer(Service):
    """Claims jobs in batches, for the slots that are free."""

    name = "claimer"

    def __init__(
        self,
        store: Store,
        *,
        worker_id: Callable[[], str],
        policies: Callable[[], Policies],
        room: Callable[[], Room],
        start: Callable[[Job], None],
        batch_size: int,
        poll_interval: timedelta,
    ) -> None:
        super().__init__()
        self._store = store
        self._worker_id = worker_id
        self._policies = policies
        self._room = room
        self._start_job = start
        self._batch_size = batch_size
        self._poll_interval = poll_interval
        self._freed = asyncio.Event()
        self._empty_handed = 0

    def freed(self) -> None:
        """Take notice that a run has ended, so that there is room for another."""
        self._freed.set()

    async def stop(self) -> None:
        """End after the claim under way; what it brings is still started, or given back."""
        self._freed.set()
        await super().stop()

    async def tick(self) -> float:
        self._freed.clear()
        room = self._room()
        if room.slots <= 0:
            await self._freed.wait()
            return 0
        sweep = await self._sweep()
        claim = plan(sweep.heads, self._policies(), room, at_most=self._batch_size)
        if not claim.asks:
            await self._rest(sweep)
            return 0
        return await self._claim(claim)

    async def _sweep(self) -> Sweep:
        """Look at the lanes, after what is due has come into them."""
        sweep = await self._store.sweep(fresh=False)
        while sweep.next_due is not None and sweep.next_due <= sweep.now:
            await self._store.promote(_PROMOTED_AT_ONCE)
            sweep = await self._store.sweep(fresh=False)
        return sweep

    async def _claim(self, claim: Claim) -> float:
        jobs = await self._store.claim(claim, worker=self._worker_id(), token=secrets.randbits(63))
        for job in jobs:
            self._start_job(job)
        self._empty_handed = 0 if jobs else self._empty_handed + 1
        if not self._empty_handed:
            return 0
        # Others were faster, or the lease is being renewed: do not spin.
        pause: float = _EMPTY_HANDED * 2 ** min(self._empty_handed, 10)
        return min(pause, self._poll_interval.total_seconds())

    async def _rest(self, sweep: Sweep) -> None:
        """Wait for work, for the next due time, for room in a pool, or for the next poll."""
        timeout = self._poll_interval
        if sweep.next_due is not None:
            timeout = min(timeout, sweep.next_due - sweep.now)
        await _first_of(
            self._store.wait(sweep.mark, timeout),
            self._freed.wait(),
        )


async def _first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
