"""Owns when a worker asks the token accounts in the store, and for what.

The store is asked a few times a second at most, for all limits at once;
`core.policies.limit_grants` decides.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping

from windlass.core.jobs.job import Job
from windlass.core.jobs.queries import JobFilter
from windlass.core.jobs.states import State
from windlass.core.policies.limit import OVERRIDE, Limit, Measure
from windlass.core.policies.limit_grants import Wish
from windlass.core.policies.limit_holding import TokenHolding
from windlass.core.records import Json
from windlass.handlers.registry import Registry
from windlass.observability.logs import get_logger
from windlass.process.clocks import clock_of
from windlass.store import Store
from windlass.worker.policies.exhausted_lanes import ExhaustedLanes
from windlass.worker.policies.limit_tokens import HeldTokens, reducer
from windlass.worker.state import WorkerState

log = get_logger("windlass.limits")
REQUEST_SECONDS = 0.1
"""Minimum seconds between two requests to the store."""
_POLL_SECONDS = 0.5
"""Seconds until the next check whether others want tokens, or have given some back."""
_OVERRIDES_SECONDS = 1.0
"""Seconds until the next check whether an operator has changed a limit."""
_CENSUS_SECONDS = 1.0
"""Seconds until the next check whether the workers that hold tokens are alive."""
_COOLED_SECONDS = 0.005
"""Seconds that tokens which have cooled may wait for those that cool next."""
_MAX_REQUESTS = 100
_JOBS_PER_PAGE = 1_000

Draws = tuple[tuple[HeldTokens, int], ...]
"""The tokens that a lane draws on, and how many of each a job takes."""


class TokenRequests:
    """The tokens that a worker holds, wants and gives back."""

    def __init__(self, store: Store, registry: Registry, state: WorkerState) -> None:
        self._store = store
        self._registry = registry
        self._state = state
        self.now = clock_of(asyncio.get_running_loop())
        self.worker = ""
        """The id under which the tokens are held."""
        self.limits = dict(registry.limits)
        self.held: dict[tuple[str, Measure, str], HeldTokens] = {}
        self.by_name: dict[str, HeldTokens] = {}
        self.lanes: dict[tuple[str, str, str], Draws] = {}
        """The tokens that lanes draw on, as far as known; emptied whenever that may
        have changed.
        """
        self.wanted: dict[HeldTokens, int] = {}
        """Tokens to request, and how many the next job takes."""
        self.lacking: dict[HeldTokens, float] = {}
        """Tokens that are not available now, and when to ask again."""
        self.exhausted = ExhaustedLanes(self.wanted, self.lacking)
        self.roused = asyncio.Event()
        self.busy: dict[str, frozenset[str]] = {}
        """By ordered limit, the keys of jobs that dead workers have left running."""
        self.applied_at = -math.inf
        self._polled_at = self._read_at = self._counted_at = -math.inf
        self._has_surplus = False
        self._holders: frozenset[str] = frozenset()
        self._gone: frozenset[str] = frozenset()
        self._overrides: Mapping[str, Json] = {}

    def forget(self, worker: str) -> None:
        """Start anew under an id that holds nothing; the tokens of the last id are lost."""
        self.worker = worker
        for table in (self.held, self.by_name, self.lanes, self.wanted, self.lacking, self.busy):
            table.clear()
        self.exhausted.clear()
        self._has_surplus = False
        self._holders = self._gone = frozenset()

    def request(self, held: HeldTokens, amount: int, now: float) -> None:
        """Request tokens soon, unless none are available before a known time."""
        ledger = held.ledger
        if ledger.held < ledger.tokens.capacity and held.retry_at <= now:
            if held not in self.wanted:
                self.wanted[held] = amount
                self.roused.set()
            return
        wake = held.retry_at if held.retry_at > now else now + _POLL_SECONDS
        moved = ledger.next_tick
        wake = max(wake if moved is None else min(wake, moved), now + _COOLED_SECONDS)
        if self.lacking.get(held, math.inf) > wake:
            self.lacking[held] = wake
            self.roused.set()

    def return_surplus(self, ledger: TokenHolding) -> None:
        """Give back soon the tokens that others wait for."""
        if ledger.over and not self._has_surplus:
            self._has_surplus = True
            self.roused.set()

    async def talk(self) -> bool:
        """Send the requests that are due; return False if the tokens were given to others."""
        worker, is_kept = self.worker, True
        await self._read_overrides()
        await self._census()
        wishes = self._wishes(self.now())
        if wishes:
            is_kept = await self._apply(worker, wishes)
        self._wake(self.now())
        return is_kept

    async def give_back_all(self) -> None:
        """Give back every token that no job has."""
        now = self.now()
        held = [each for each in self.held.values() if each.ledger.held]
        wishes = {each: each.ledger.wish(now, give=each.ledger.held) for each in held}
        if wishes:
            await self._apply(self.worker, wishes)

    def due(self) -> float:
        """Return when the next request is due, unless the claimer needs one before."""
        due = min(self.lacking.values(), default=math.inf)
        if self.wanted or self._has_surplus:
            due = min(due, self.applied_at + REQUEST_SECONDS)
        if self.held:
            due = min(due, max(self._polled_at, self.applied_at) + _POLL_SECONDS)
        return due

    async def wait(self, due: float) -> None:
        """Wait until a moment, or until tokens are wanted before that."""
        self.roused.clear()
        try:
            async with asyncio.timeout(None if due == math.inf else due - self.now()):
                await self.roused.wait()
        except TimeoutError:
            return

    def _wishes(self, now: float) -> dict[HeldTokens, Wish]:
        """Return the wants first, then the surplus, then the rest if it is due."""
        wishes: dict[HeldTokens, Wish] = {}
        if self.wanted and now >= self.applied_at + REQUEST_SECONDS:
            for held in list(self.wanted)[:_MAX_REQUESTS]:
                amount = self.wanted.pop(held)
                self.lacking[held] = now + _POLL_SECONDS
                wishes[held] = held.want(amount, slots=self._state.slots, now=now)
        if (
            now >= max(self._polled_at, self.applied_at) + _POLL_SECONDS
            or wishes
            or self._has_surplus
        ):
            self._polled_at, self._has_surplus = now, False
            for place, held in list(self.held.items()):
                if len(wishes) >= 2 * _MAX_REQUESTS:
                    self._has_surplus = True  # The rest comes first next time.
                    break
                if held not in wishes and not self._is_over(held, now):
                    is_needed = held in self.lacking or held in self.wanted
                    give = held.surplus(now, is_needed=is_needed)
                    wishes[held] = held.ledger.wish(now, give=give)
                    self.held[place] = self.held.pop(place)
        return wishes

    def _is_over(self, held: HeldTokens, now: float) -> bool:
        """Forget tokens of which none is held or needed; return whether nothing is left to send."""
        is_needed = held in self.lacking or held in self.wanted or held.was_needed(now)
        if held.ledger.unconfirmed:
            return False  # The store has not confirmed yet that the tokens were given back.
        if held.ledger.held or is_needed:
            return not held.ledger.held
        del self.held[held.limit.name, held.measure, held.key], self.by_name[held.name]
        self.lanes.clear()
        return True

    async def _apply(self, worker: str, wishes: Mapping[HeldTokens, Wish]) -> bool:
        """Send wishes; return False if this worker was declared dead and holds nothing now."""
        decide = reducer(worker, wishes, gone=self._gone, busy=dict(self.busy))
        names = sorted({held.record for held in wishes})
        self.applied_at = self.now()
        answer = (await self._store.apply(names, decide)).answer
        if worker != self._state.id:
            return True
        now, came = self.now(), False
        for held, reply in answer.replies.items():
            wish = wishes[held]
            if not held.ledger.take_in(wish, reply):
                return False
            if reply.freed and not held.is_rate and held.ledger.release():
                self.lacking.pop(held, None)
                held.retry_at = now
                came = True
            if reply.granted:
                self.lacking.pop(held, None)
                came = True
            elif wish.most:
                wait = _POLL_SECONDS if reply.after is None else min(reply.after, _POLL_SECONDS)
                held.retry_at = self.lacking[held] = now + max(wait, _COOLED_SECONDS)
                held.free_at = None if reply.after is None else now + reply.after
        self._holders |= answer.holders
        if came:
            self._state.claim_again.set()
        return True

    def _wake(self, now: float) -> None:
        """Wake the claimer for tokens that have cooled, or may be available now."""
        ready = [held for held, wake in self.lacking.items() if wake <= now]
        for held in ready:
            del self.lacking[held]
        if ready:
            self._state.claim_again.set()

    async def _read_overrides(self) -> None:
        if self.now() < self._read_at + _OVERRIDES_SECONDS:
            return
        self._read_at = self.now()
        overrides = await self._store.records(OVERRIDE)
        if overrides == self._overrides:
            return
        self._overrides = overrides
        for name, limit in self._registry.limits.items():
            changed = limit.changed(overrides.get(OVERRIDE + name, {}))
            if changed != self.limits[name]:
                log.info("limit.changed", limit=name, **shown(changed))
                self.limits[name] = changed
        self.lanes.clear()
        self.exhausted.clear()
        for held in self.held.values():
            tokens = self.limits[held.limit.name].tokens().get(held.measure)
            if tokens is not None:
                held.ledger.change(tokens)
        self._state.claim_again.set()

    async def _census(self) -> None:
        """Find out which workers that hold wanted tokens have lost their lease for good."""
        short = bool(self.wanted) or bool(self.lacking)
        if not (self._holders and short and self.now() >= self._counted_at + _CENSUS_SECONDS):
            return
        self._counted_at = self.now()
        # A worker registers before it holds tokens, so an unlisted worker is gone.
        left = {each.info.id for each in await self._store.workers() if not each.ended}
        gone, self._holders = self._holders - left, self._holders & left
        # Kept, since an id that is gone never comes back, and other records may name it.
        self._gone |= gone
        if gone:
            log.info("tokens.freed", workers=sorted(gone))
            for limit in self.limits.values():
                if limit.ordered:
                    self.busy[limit.name] = await self._keys_running(limit)

    async def _keys_running(self, limit: Limit) -> frozenset[str]:
        """Return the keys of running jobs, also of those that dead workers have left."""
        keys: set[str] = set()
        for kind in self._registry.ordered:
            own = self._registry[kind].limit
            if own is not None and own.name == limit.name:
                keys |= {job.key async for job in self._jobs_running(kind)}
        return frozenset(keys)

    async def _jobs_running(self, kind: str) -> AsyncIterator[Job]:
        which, after = JobFilter(states=(State.RUNNING,), kind=kind), None
        while True:
            page = await self._store.find(which, limit=_JOBS_PER_PAGE, after=after, brief=True)
            for job in page.jobs:
                yield job
            if (after := page.after) is None:
                return


def shown(limit: Limit) -> dict[str, object]:
    """Return the parts of a limit in the notation that users write."""
    return {
        "rate": None if limit.rate is None else str(limit.rate),
        "burst": limit.burst,
        "concurrency": limit.concurrency,
    }
