"""Owns the loop that looks at the lanes, plans a claim and starts its jobs; never more than fit."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from windlass.core.claims.lanes import Claim, StandingAsk, Sweep
from windlass.core.claims.plan import plan
from windlass.core.claims.room import FREE, SLOTS, Pool, Room, queue_budget
from windlass.core.errors import StoreError
from windlass.core.jobs.job import Job
from windlass.observability.logs import get_logger
from windlass.observability.meters import Meters
from windlass.process.outage import is_away
from windlass.process.service import Service
from windlass.store import Store
from windlass.worker.idle_collection import IdleCollection
from windlass.worker.state import WorkerState

if TYPE_CHECKING:
    from windlass.worker.engine.engine import Engine

log = get_logger("windlass.claimer")
_MAX_PROMOTED = 1_000
_EMPTY_CLAIM_SECONDS = 0.005
_NEWCOMER_POLL_SECONDS = 0.05
"""Seconds between two looks at the lanes while no slot is free and keys take turns."""
_MAX_CUT_PLANS = 20
"""Number of plans in a row that may leave lanes to the next plan."""
_COMMON_BUDGETS = 3
"""Number of budgets that every claim has; most further ones belong to single queues."""
_NO_ROOM = Room(slots=0, threads=0)
# Module-level names, since a lookup on an enum is slow.
_LOOP, _THREADS = Pool.LOOP, Pool.THREADS


class _Step(Enum):
    """The next step of the claimer."""

    AWAIT_CLAIM = auto()
    """A claim under way has to answer before another one makes sense."""
    AWAIT_ROOM = auto()
    """No slot is free, and no claim is under way."""
    LET_JOBS_BEGIN = auto()
    """Claimed jobs have not begun yet; they begin as the event loop turns."""
    CLAIM = auto()
    """Slots are free: look at the lanes and claim the jobs that wait there."""


class Claimer(Service):
    """Claims jobs in batches, for the slots that are free."""

    name = "claimer"

    def __init__(
        self,
        store: Store,
        engine: Engine,
        *,
        state: WorkerState,
        meters: Meters,
        claim_size: int,
        poll_interval: timedelta,
    ) -> None:
        super().__init__()
        self._store = store
        self._engine = engine
        self._state = state
        self._gates = engine.gates
        self._demand = engine.demand
        self._meters = meters
        self._claim_size = min(claim_size, store.capabilities.claim_size or claim_size)
        self._most_under_way = store.capabilities.claims_under_way
        self._poll_interval = poll_interval
        self._empty_claims = 0
        self._under_way: set[asyncio.Task[float]] = set()
        self._reserved = _NO_ROOM
        self._is_pipelining = False
        """Whether the next claim is sent before the last one has answered."""
        self._cut_plans = 0
        self._collection = IdleCollection()

    @property
    def is_claiming(self) -> bool:
        """Whether a claim is under way, which may bring jobs."""
        return self._reserved.slots > 0

    async def stop(self) -> None:
        """Stop after the claims under way; their jobs are still started or given back."""
        self._state.claim_again.set()
        try:
            await super().stop()
            if self._under_way:
                await asyncio.wait(self._under_way)
        finally:
            # Also if the shutdown does not wait any longer: no tick will ask for their errors.
            for claim in self._under_way:
                claim.add_done_callback(self._report_failed)
        with suppress(StoreError):  # Jobs that are still brought are given back.
            await self._store.busy()

    async def tick(self) -> float:
        step, room, at_most = self._next_step()
        match step:
            case _Step.AWAIT_CLAIM:
                return await self._await_claim()
            case _Step.AWAIT_ROOM:
                return await self._await_room()
            case _Step.LET_JOBS_BEGIN:
                return 0
            case _Step.CLAIM:
                return await self._claim_next(room, at_most)

    def _next_step(self) -> tuple[_Step, Room, int]:
        """Return the next step, and for a claim the room for it and the most it may bring."""
        if len(self._under_way) == self._most_under_way:
            return _Step.AWAIT_CLAIM, _NO_ROOM, 0
        self._state.claim_again.clear()
        room = self._room_left()
        if room.slots <= 0:
            return _Step.AWAIT_CLAIM if self._under_way else _Step.AWAIT_ROOM, room, 0
        at_most = min(self._claim_size, self._engine.tasks.appetite - self._reserved.slots)
        if at_most <= 0:
            return _Step.AWAIT_CLAIM if self._under_way else _Step.LET_JOBS_BEGIN, room, 0
        if self._under_way and room.slots < at_most:
            # The claim under way will fill the slots; a second one would be small.
            return _Step.AWAIT_CLAIM, room, 0
        return _Step.CLAIM, room, at_most

    async def _claim_next(self, room: Room, at_most: int) -> float:
        sweep = await self._sweep()
        claim = self._plan(sweep, room, at_most)
        if claim.asks and not self._is_pipelining and not self._under_way:
            return await self._claim(claim)
        if claim.asks:
            ahead = self._claim(claim, is_ahead=bool(self._under_way))
            self._under_way.add(asyncio.create_task(ahead, name="windlass-claim"))
            return 0 if self._is_pipelining else await self._await_claim()
        if self._under_way:
            return await self._await_claim()
        if not claim.cut:  # Otherwise the lanes that were left out come next, without a pause.
            await self._rest(sweep)
        return 0

    async def round(self) -> None:
        await self.take_one()

    async def take_one(self) -> bool:
        """Claim and start the next job; return whether there was one, and a slot for it."""
        self._state.claim_again.clear()
        room = self._room_left()
        if room.slots <= 0:
            return False
        sweep = await self._sweep()
        claim = self._plan(sweep, room, 1)
        if claim.asks:
            self._empty_claims = 0
            await self._claim(claim)
        return bool(claim.asks) and not self._empty_claims

    async def wait_for_room(self) -> None:
        """Return once a run has ended since the last look for a job."""
        await self._state.claim_again.wait()

    def _plan(self, sweep: Sweep, room: Room, at_most: int) -> Claim:
        # An exhausted lane is skipped for half a second. If there are more exhausted lanes than a
        # plan can look at in that time, the lanes behind them would never be reached.
        thorough = self._cut_plans >= _MAX_CUT_PLANS
        heads, policies, now = sweep.heads, self._state.policies, sweep.now
        claim = plan(heads, policies, room, at_most=at_most, now=now, thorough=thorough)
        self._cut_plans = self._cut_plans + 1 if claim.cut else 0
        return claim

    def _room_left(self) -> Room:
        return _add(self._engine.room(), self._reserved, -1)

    async def _await_room(self) -> float:
        await self._store.busy()
        claim_again = self._state.claim_again
        while not claim_again.is_set() and self._state.policies.minds_newcomers:
            # So that a new key gets the next free slot, and not the one after that.
            await self._look()
            await asyncio.wait(
                {freed := asyncio.ensure_future(claim_again.wait())},
                timeout=_NEWCOMER_POLL_SECONDS,
            )
            freed.cancel()
        await claim_again.wait()
        return 0

    async def _await_claim(self) -> float:
        done, self._under_way = await asyncio.wait(
            self._under_way, return_when=asyncio.FIRST_COMPLETED
        )
        errors = [error for claim in done if (error := _error_of(claim)) is not None]
        for error in errors[1:]:  # Only one can be raised.
            self._report(error)
        if errors:
            raise errors[0]
        return max([claim.result() for claim in done])

    def _report_failed(self, claim: asyncio.Task[float]) -> None:
        if (error := _error_of(claim)) is not None:
            self._report(error)

    def _report(self, error: BaseException) -> None:
        """Log the error of a claim that no tick raises; an outage is the matter of those."""
        tell = log.debug if is_away(error) else log.warning
        exc_info = None if isinstance(error, StoreError) else error
        tell("claim.failed", error=f"{type(error).__qualname__}: {error}", exc_info=exc_info)

    async def _sweep(self) -> Sweep:
        """Move the jobs that are due to their lanes, those of all queues, and look at the lanes."""
        sweep = await self._look()
        while sweep.next_due is not None and sweep.next_due <= sweep.now:
            await self._store.promote(_MAX_PROMOTED)
            sweep = await self._look()
        return sweep

    async def _look(self) -> Sweep:
        return await self._store.sweep(fresh=False, queues=self._state.policies.queues)

    async def _claim(self, claim: Claim, *, is_ahead: bool = False) -> float:
        """Claim and start jobs; return a pause. One sent ahead of an answer may find nothing."""
        wanted = _reservation(claim)
        self._reserve(wanted, 1)
        self._gates.reserve(claim.reserves)
        rotation = self._state.policies.rotation
        if rotation is not None:
            rotation.take(claim.turns)
        jobs: list[Job] = []
        token = secrets.randbits(63)
        try:
            began = time.perf_counter()
            jobs = await self._store.claim(claim, worker=self._state.id, token=token)
            took = time.perf_counter() - began
            self._state.store_answered()
        except BaseException:
            self._is_pipelining = False
            self._gates.doubt(claim.reserves, token)
            self._meters.call_failed("claim")
            raise
        finally:
            self._reserve(wanted, -1)
            self._gates.unreserve(claim.reserves)
            if rotation is not None:
                rotation.settle(claim.turns, Counter(job.lane for job in jobs))
        for job in jobs:
            self._engine.start(job)
        is_full = len(jobs) >= wanted.slots
        # The keys of this claim may have had fewer jobs than were asked for, and other keys more.
        self._is_pipelining = is_full or (claim.others and len(jobs) > 0)
        self._demand.claimed(more=is_full)
        self._empty_claims = 0 if jobs else self._empty_claims + (not is_ahead)
        self._meters.claimed(jobs, took)
        if is_ahead or not self._empty_claims:
            return 0
        # Other workers were faster, or the lease is being renewed: back off.
        pause: float = _EMPTY_CLAIM_SECONDS * 2 ** min(self._empty_claims, 10)
        return min(pause, self._poll_interval.total_seconds())

    def _reserve(self, wanted: Room, sign: int) -> None:
        self._reserved = _add(self._reserved, wanted, sign)

    async def _rest(self, sweep: Sweep) -> None:
        """Wait for work, for the next due time, for room in a pool, or for the next poll."""
        policies = self._state.policies
        hopeful = policies.hopeful(sweep.heads)
        self._demand.rested(waiting=any(policies.may_run(head.lane) for head in hopeful))
        self._is_pipelining = False
        if not self._state.runs:
            self._collection.rest()
        timeout = self._poll_interval
        if sweep.next_due is not None:
            timeout = min(timeout, sweep.next_due - sweep.now)
        waiting = self._store.wait(
            sweep.mark, timeout, self._standing_ask(), queues=policies.queues
        )
        await _first_of(waiting, self._state.claim_again.wait())

    # -- standing asks -------------------------------------------------------------------------

    def _standing_ask(self) -> StandingAsk | None:
        """Return an ask for the next job of kinds that no policy bounds; None unless all is idle.

        A job that comes by it is not waited for, so a handler that blocks the event loop would
        delay it: no ask is left while a job runs. Nor is one left that `_take` would give back.
        """
        state, policies, room = self._state, self._state.policies, self._room_left()
        if state.runs or policies.paused or not state.serves:
            return None
        if room.slots <= 0 or any(free <= 0 for free in room.queues.values()):
            return None  # An ask names kinds and not queues.
        in_turn = () if policies.rotation is None else policies.rotation.kinds
        may_bar = self._gates.may_bar
        kinds = [
            kind
            for kind in policies.kinds
            if kind not in policies.ordered
            and kind not in in_turn
            and not may_bar(kind)
            and _has_place(policies.kinds[kind], room)
        ]
        if not kinds:
            return None
        token = secrets.randbits(63)
        return StandingAsk(worker=state.id, token=token, kinds=tuple(kinds), take=self._take)

    def _take(self, job: Job) -> None:
        """Start a job that came by a standing ask, or give it back if it may not start any more."""
        if not self._may_start(job):
            self._engine.give_back(job, "its worker could not start it any more")
            return
        self._engine.start(job)
        # Later, so as not to delay the handler.
        asyncio.get_running_loop().call_soon(self._count, job)

    def _count(self, job: Job) -> None:
        self._state.store_answered()
        self._demand.claimed(more=False)
        self._meters.claimed([job], 0.0)

    def _may_start(self, job: Job) -> bool:
        policies, room = self._state.policies, self._room_left()
        return (
            job.worker == self._state.id
            and room.slots > 0
            and room.queues.get(job.queue, 1) > 0
            and policies.serves(job.lane)
            and _has_place(policies.kinds[job.kind], room)
            and not self._gates.may_bar(job.kind)
        )


def _error_of(claim: asyncio.Task[float]) -> BaseException | None:
    """Return the error of a claim that has ended, so that asyncio does not report it."""
    return asyncio.CancelledError() if claim.cancelled() else claim.exception()


def _has_place(pool: Pool, room: Room) -> bool:
    if pool is _THREADS:
        return room.threads > 0
    return pool is _LOOP or room.isolated_processes > 0


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
    slots = claim.budgets[SLOTS]
    drawn = {name for ask in claim.asks for name in ask.draws}
    taken = {name: left if name in drawn else 0 for name, left in claim.budgets.items()}
    queues = {}
    if len(claim.budgets) > _COMMON_BUDGETS:
        for queue in {ask.lane.queue for ask in claim.asks}:
            if (own := queue_budget(queue)) in claim.budgets:
                queues[queue] = min(slots, claim.budgets[own])
    return Room(
        slots=slots,
        threads=taken[Pool.THREADS],
        isolated_processes=taken[Pool.ISOLATED],
        queues=queues,
        free=taken.get(FREE, slots),
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
        isolated_processes=room.isolated_processes + sign * other.isolated_processes,
        queues=queues,
        quick=room.quick,
        free=room.free + sign * other.free,
    )
