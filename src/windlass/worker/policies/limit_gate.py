"""Owns which jobs may start in this worker: each takes some of the tokens that it was granted.

`core.policies.limit_grants` decides how many the worker gets, and `limit_requests` asks for them;
the hot path is some arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from windlass.core.claims.allotment import Allowance
from windlass.core.claims.lanes import Head
from windlass.core.claims.room import Pool
from windlass.core.jobs.job import Job, Lane
from windlass.core.jobs.outcomes import Outcome, Released, Snoozed
from windlass.core.jobs.settle import Transition
from windlass.core.policies.limit import Limit, Measure, Tokens, queue_limit
from windlass.core.policies.limit_holding import TokenHolding
from windlass.handlers.registry import Registry
from windlass.store import Store
from windlass.worker.engine.start_pace import MAX_START_SECONDS
from windlass.worker.policies.gate import Gate
from windlass.worker.policies.limit_requests import REQUEST_SECONDS, Draws, TokenRequests
from windlass.worker.policies.limit_tokens import HeldTokens
from windlass.worker.state import WorkerState

_CHILD_START_SECONDS = 1.0
"""Seconds within which a job in a child process has started."""
_MAX_CACHED_LANES = 100_000
_Run = tuple[Job | None, Draws, float]
_NO_RUN: _Run = (None, (), 0.0)
_GIVEN_BACK = (Released, Snoozed)


class _Doubt(NamedTuple):
    """What a claim of unknown fate may have used of one limit."""

    token: int
    """The token of the claim, which its jobs have."""
    held: HeldTokens
    blocked: int
    earliest: float
    """When it may be resolved at the earliest."""


class LimitGate(Gate):
    """All limits of a worker's kinds and queues, and those that kinds share."""

    name = "limits"

    def __init__(
        self,
        store: Store,
        registry: Registry,
        *,
        state: WorkerState,
        lease: timedelta,
    ) -> None:
        super().__init__()
        registry.check_limits()
        self._registry = registry
        self._state = state
        self._pools = state.policies.kinds
        self._lease = lease.total_seconds()
        self._amounts: dict[str, int] = {}
        for kind in registry:
            name, units = registry[kind].shared_limit or "", registry[kind].units
            self._amounts[name] = max(self._amounts.get(name, 1), units)
        self._requests = TokenRequests(store, registry, state)
        self._by_name = self._requests.by_name
        self._lanes = self._requests.lanes
        self._exhausted = self._requests.exhausted
        # Keyed by the identity of a job that is kept here, since hashing its id is slow.
        self._running: dict[int, tuple[Job, Draws, float]] = {}
        self._unsettled: dict[int, tuple[Job, Draws, float]] = {}
        self._doubts: list[_Doubt] = []

    def go_by(self, now: Callable[[], float]) -> None:
        super().go_by(now)
        self._requests.now = now

    # -- called by the claimer and the runs ----------------------------------------------------

    def allowances(self, lane: Lane) -> Iterable[Allowance]:
        found = self._of(lane.queue, lane.kind, lane.key)
        if not found:
            return ()
        now, allowed = self._now(), []
        for held, amount in found:
            allowed.append(self._allowance(held, amount, now))
            if allowed[-1].left < amount:
                # The tokens after the missing one are not requested, and so go back soon: otherwise
                # two workers that each hold a part of what both need would wait for each other.
                self._exhausted.note(lane, [each for each, _ in found[: len(allowed)]])
                break
        return allowed

    def unspent(self, heads: Iterable[Head]) -> list[Head]:
        return self._exhausted.leave_out(heads, self._now())

    def lets(self, lane: Lane) -> bool:
        found = self._of(lane.queue, lane.kind, lane.key)
        return all(held.ledger.free >= amount for held, amount in found)

    def may_bar(self, kind: str) -> bool:
        limits = self._requests.limits
        if any(name.startswith(queue_limit("")) for name in limits):
            return True
        # The queue does not matter: no queue has a limit.
        return any(name in limits for name, _ in self._registry.limited_by(kind, ""))

    def _allowance(self, held: HeldTokens, amount: int, now: float) -> Allowance:
        ledger = held.ledger
        ledger.tick(now)
        ledger.needed_at = now
        left = ledger.free if self._requests.worker == self._state.id else 0
        if ledger.amount > 1 and held.is_kept_for_others(amount, left, now):
            left = 0
        elif left < amount:
            self._requests.request(held, amount, now)
        return Allowance(held.name, left, amount, shared=self._is_shared(held))

    def _is_shared(self, held: HeldTokens) -> bool:
        """Return whether a claim itself draws tokens: not if some jobs use more than others."""
        return not held.limit.keyed and held.ledger.amount == 1

    def reserve(self, reserves: Mapping[str, int]) -> None:
        for name, count in reserves.items():
            if (held := self._by_name.get(name)) is not None:
                held.ledger.reserved += count

    def unreserve(self, reserves: Mapping[str, int]) -> None:
        for name, count in reserves.items():
            if (held := self._by_name.get(name)) is not None:
                # Fewer, if the ledger was reset since.
                held.ledger.reserved = max(held.ledger.reserved - count, 0)

    def doubt(self, reserves: Mapping[str, int], token: int) -> None:
        earliest = self._now() + self._lease
        for name, count in reserves.items():
            held = self._by_name.get(name)
            if held is not None and held.limit.ordered:
                # The claim may have brought a job; until that is known, no other job takes its
                # tokens.
                blocked = held.ledger.doubt(count)
                self._doubts.append(_Doubt(token, held, blocked, earliest))

    @property
    def doubtful(self) -> set[int]:
        return {each.token for each in self._doubts}

    def resolve(self, tokens: Collection[int]) -> None:
        now, left = self._now(), []
        for each in self._doubts:
            # Not at once: a request that was held up on its way may still be carried out.
            if each.token in tokens and now >= each.earliest:
                each.held.ledger.resolve(each.blocked)
                self._state.claim_again.set()
            else:
                left.append(each)
        self._doubts = left

    def began(self, job: Job) -> None:
        found = self._of(job.queue, job.kind, job.key)
        if not found:
            return
        now, run = self._now(), id(job)
        self._running[run] = (job, found, now)
        for held, amount in found:
            ledger = held.ledger
            ledger.needed_at = now
            if held.is_rate:
                ledger.start(run, amount, now)
            else:
                ledger.take(amount)

    def ended(self, job: Job, outcome: Outcome | Transition) -> None:
        run = id(job)
        _, found, began = self._running.pop(run, _NO_RUN)
        for held, amount in found:
            ledger = held.ledger
            if held.is_rate:
                if isinstance(outcome, _GIVEN_BACK) and not outcome.begun:
                    ledger.refund(run)
                else:
                    ledger.started(run, self._now())
            elif held.limit.ordered:
                self._unsettled[run] = (job, found, began)
            else:
                ledger.bring(amount)
                if ledger.pressed:
                    self._requests.return_surplus(ledger)

    def settled(self, job: Job, move: Transition | None) -> None:
        if not self._unsettled:
            return
        _, found, began = self._unsettled.pop(id(job), _NO_RUN)
        hold = None if move is None else move.hold
        for held, amount in found:
            if held.is_rate or not held.limit.ordered:
                continue
            if hold is None:
                held.ledger.bring(amount)
            else:
                held.ledger.hold_back(amount, self._end_of(hold, job, began))
                # The token may come back sooner than was known.
                self._requests.lacking.pop(held, None)
            self._state.claim_again.set()

    def _end_of(self, hold: timedelta | datetime, job: Job, began: float) -> float:
        """Return when a key is free again; a datetime is by the store's clock."""
        if isinstance(hold, timedelta):
            return self._now() + hold.total_seconds()
        return began + (hold - (job.started_at or job.due_at)).total_seconds()

    def _has_come(self, run: int) -> bool:
        """Return whether a job has reached its handler; an unknown job has ended."""
        running = self._running.get(run)
        return running is None or self._state.runs.has_begun(running[0].id)

    # -- which limits apply to a lane ----------------------------------------------------------

    def _of(self, queue: str, kind: str, key: str) -> Draws:
        found = self._lanes.get((queue, kind, key))
        if found is None:
            found = tuple(self._find(queue, kind, key))
            if len(self._lanes) > _MAX_CACHED_LANES:
                self._lanes.clear()
            self._lanes[queue, kind, key] = found
        return found

    def _find(self, queue: str, kind: str, key: str) -> Iterator[tuple[HeldTokens, int]]:
        slack = (
            _CHILD_START_SECONDS if self._pools.get(kind) is Pool.ISOLATED else MAX_START_SECONDS
        )
        for name, amount in self._registry.limited_by(kind, queue):
            limit = self._requests.limits.get(name)
            if limit is not None:
                for measure, tokens in limit.tokens().items():
                    yield self._held_tokens(limit, measure, key, tokens, slack), amount

    def _held_tokens(
        self, limit: Limit, measure: Measure, key: str, tokens: Tokens, slack: float
    ) -> HeldTokens:
        place = (limit.name, measure, key if limit.keyed else "")
        held = self._requests.held.get(place)
        if held is None:
            held = HeldTokens(limit, measure, place[2], self._ledger(limit, tokens, slack))
            self._requests.held[place] = self._by_name[held.name] = held
        return held

    def _ledger(self, limit: Limit, tokens: Tokens, slack: float) -> TokenHolding:
        amount = self._amounts.get(limit.name, 1)
        return TokenHolding(tokens, slack, self._has_come, amount)

    # -- the loop ------------------------------------------------------------------------------

    async def tick(self) -> float:
        self._keep_up_with_lease()
        requests = self._requests
        if not requests.worker:
            return REQUEST_SECONDS
        if (due := requests.due()) <= self._now():
            await self._talk()
        elif not self._stopping.is_set():
            await requests.wait(due)
        return 0

    async def round(self) -> None:
        self._keep_up_with_lease()
        # A tick that is called by hand always sends the requests.
        self._requests.applied_at = -math.inf
        if self._requests.due() <= self._now():
            await self._talk()

    def looks_at(self) -> float | None:
        """Return when tokens that are lacking have cooled, here or elsewhere."""
        lacking, now = self._requests.lacking, self._now()
        times = [at for held in lacking for at in (held.free_at, held.ledger.next_tick)]
        return min((at for at in times if at is not None and at > now), default=None)

    async def stop(self) -> None:
        """Stop, and give back every token that no job has."""
        self._requests.roused.set()
        await super().stop()
        if self._requests.worker and self._requests.worker == self._state.id:
            await self._requests.give_back_all()

    def _keep_up_with_lease(self) -> None:
        if self._state.id != self._requests.worker:
            self._forget()

    async def _talk(self) -> None:
        if not await self._requests.talk():
            self._forget()

    def _forget(self) -> None:
        self._requests.forget(self._state.id)
        self._running.clear()
        self._unsettled.clear()
        self._doubts.clear()
