"""Owns the loop that looks for work, plans what to take, and starts it; never more than fits."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from windlass.core.job import Claim, Job, Sweep
from windlass.core.plan import SLOTS, Policies, Pool, Room, plan, queue_budget
from windlass.observe.meters import Meters
from windlass.runtime.demand import Demand
from windlass.runtime.gates import Gates
from windlass.runtime.service import Service
from windlass.store import Store

_PROMOTED_AT_ONCE = 1_000
_EMPTY_HANDED = 0.005
_GLANCE = 0.05
"""Seconds between two looks at the lanes while there is no room, where it matters who is new."""
_AHEAD = 2
"""How many claims may be under way: one that is answered, and one that follows."""
_CUTS = 20
"""How many plans in a row may leave lanes to the next one."""
_UNQUEUED = 3
"""How many budgets every claim has; what there are beyond those, queues have of their own."""


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
        bite: Callable[[], int],
        start: Callable[[Job], None],
        gates: Gates,
        demand: Demand,
        meters: Meters,
        asked: Callable[[], None],
        batch_size: int,
        poll_interval: timedelta,
    ) -> None:
        super().__init__()
        self._store = store
        self._worker_id = worker_id
        self._policies = policies
        self._room = room
        self._bite = bite
        self._start_job = start
        self._gates = gates
        self._demand = demand
        self._meters = meters
        self._asked = asked
        self._batch_size = batch_size
        self._poll_interval = poll_interval
        self._freed = asyncio.Event()
        self._empty_handed = 0
        self._under_way: set[asyncio.Task[float]] = set()
        self._reserved = Room(slots=0, threads=0)
        self._flowing = False
        self._cuts = 0

    @property
    def is_claiming(self) -> bool:
        """Whether a claim is under way, which may bring jobs."""
        return self._reserved.slots > 0

    def freed(self) -> None:
        """Take notice that a run has ended, so that there is room for another."""
        self._freed.set()

    async def stop(self) -> None:
        """End after the claims under way; what they bring is still started, or given back."""
        self._freed.set()
        await super().stop()
        if self._under_way:
            await asyncio.wait(self._under_way)

    async def tick(self) -> float:
        if len(self._under_way) == _AHEAD:
            return await self._claimed()
        self._freed.clear()
        room = self._room_left()
        if room.slots <= 0:
            return await self._claimed() if self._under_way else await self._full()
        at_most = min(self._batch_size, self._bite() - self._reserved.slots)
        if at_most <= 0:
            # What is here has not begun yet; it does while the loop turns.
            return await self._claimed() if self._under_way else 0
        if self._under_way and room.slots < at_most:
            # What is under way will bring the slots' fill; a second claim would be a small one.
            return await self._claimed()
        sweep = await self._sweep()
        claim = self._plan(sweep, room, at_most)
        if claim.asks and not self._flowing and not self._under_way:
            return await self._claim(claim)
        if claim.asks:
            # While there is more than one takes, the next claim is sent before this one is here.
            self._under_way.add(asyncio.create_task(self._claim(claim), name="windlass-claim"))
            return 0 if self._flowing else await self._claimed()
        if self._under_way:
            return await self._claimed()
        if claim.cut:
            return 0  # Others have their turn; what was found spent is passed over from now on.
        policies = self._policies()
        hopeful = policies.hopeful(sweep.heads)
        self._demand.rested(waiting=any(policies.may_run(head.lane) for head in hopeful))
        self._flowing = False
        await self._rest(sweep)
        return 0

    async def round(self) -> None:
        await self.take_one()

    async def take_one(self) -> bool:
        """Claim and start the one job that is next, if there is one and room for it; say so."""
        self._freed.clear()
        room = self._room_left()
        if room.slots <= 0:
            return False
        sweep = await self._sweep()
        claim = self._plan(sweep, room, 1)
        if claim.asks:
            self._empty_handed = 0
            await self._claim(claim)
        return bool(claim.asks) and not self._empty_handed

    async def wait_for_room(self) -> None:
        """Return once a run has ended since it was last looked for a job."""
        await self._freed.wait()

    def _plan(self, sweep: Sweep, room: Room, at_most: int) -> Claim:
        # What was found spent is so for half a second; should there be more than can be looked at
        # in that time, those behind them would never have their turn.
        thorough = self._cuts >= _CUTS
        policies = self._policies()
        claim = plan(
            sweep.heads, policies, room, at_most=at_most, now=sweep.now, thorough=thorough
        )  # fmt: skip
        self._cuts = self._cuts + 1 if claim.cut else 0
        return claim

    def _room_left(self) -> Room:
        return _add(self._room(), self._reserved, -1)

    async def _full(self) -> float:
        await self._store.busy()
        while not self._freed.is_set() and self._policies().minds_newcomers:
            # Who comes anew meanwhile is to have the next slot, and not the one after that.
            await self._store.sweep(fresh=False)
            await asyncio.wait(
                {freed := asyncio.ensure_future(self._freed.wait())}, timeout=_GLANCE
            )
            freed.cancel()
        await self._freed.wait()
        return 0

    async def _claimed(self) -> float:
        """Wait for a claim under way, and return how long to pause after it."""
        done, self._under_way = await asyncio.wait(
            self._under_way, return_when=asyncio.FIRST_COMPLETED
        )
        return max([task.result() for task in done])

    async def _sweep(self) -> Sweep:
        """Look at the lanes, after what is due has come into them."""
        sweep = await self._store.sweep(fresh=False)
        while sweep.next_due is not None and sweep.next_due <= sweep.now:
            await self._store.promote(_PROMOTED_AT_ONCE)
            sweep = await self._store.sweep(fresh=False)
        return sweep

    async def _claim(self, claim: Claim) -> float:
        wanted = _reservation(claim)
        self._reserve(wanted, 1)
        self._gates.reserve(claim.reserves)
        rotation = self._policies().rotation
        if rotation is not None:
            rotation.take(claim.turns)
        jobs: list[Job] = []
        try:
            token = secrets.randbits(63)
            began = time.perf_counter()
            jobs = await self._store.claim(claim, worker=self._worker_id(), token=token)
            took = time.perf_counter() - began
            self._asked()
        except BaseException:
            self._flowing = False
            self._gates.doubt(claim.reserves)
            self._meters.call_failed("claim")
            raise
        finally:
            self._reserve(wanted, -1)
            self._gates.unreserve(claim.reserves)
            if rotation is not None:
                rotation.settle(claim.turns, Counter(job.lane for job in jobs))
        for job in jobs:
            self._start_job(job)
        is_full = len(jobs) >= wanted.slots
        # Keys that had their turn may have fewer jobs than they were asked for, and others more.
        self._flowing = is_full or (claim.others and len(jobs) > 0)
        self._demand.claimed(more=is_full)
        self._empty_handed = 0 if jobs else self._empty_handed + 1
        self._meters.claimed(jobs, took)
        if not self._empty_handed:
            return 0
        # Others were faster, or the lease is being renewed: do not spin.
        pause: float = _EMPTY_HANDED * 2 ** min(self._empty_handed, 10)
        return min(pause, self._poll_interval.total_seconds())

    def _reserve(self, wanted: Room, sign: int) -> None:
        """Keep what a claim under way may bring from being asked for twice."""
        self._reserved = _add(self._reserved, wanted, sign)

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


def _reservation(claim: Claim) -> Room:
    """Return the most that a claim may bring."""
    slots = claim.budgets[SLOTS]
    drawn = {name for ask in claim.asks for name in ask.draws}
    taken = {name: left if name in drawn else 0 for name, left in claim.budgets.items()}
    queues = {}
    if len(claim.budgets) > _UNQUEUED:
        for queue in {ask.lane.queue for ask in claim.asks}:
            if (own := queue_budget(queue)) in claim.budgets:
                queues[queue] = min(slots, claim.budgets[own])
    return Room(
        slots=slots,
        threads=taken[Pool.THREADS],
        children=taken[Pool.CHILDREN],
        queues=queues,
    )


def _add(room: Room, other: Room, sign: int) -> Room:
    queues = room.queues
    if other.queues:
        both = dict.fromkeys([*room.queues, *other.queues])
        queues = {
            name: room.queues.get(name, 0) + sign * other.queues.get(name, 0) for name in both
        }
    return Room(
        slots=room.slots + sign * other.slots,
        threads=room.threads + sign * other.threads,
        children=room.children + sign * other.children,
        queues=queues,
    )
