"""Owns a worker's tokens: draws them for lanes that lack some, and gives back what it can spare.

Jobs use and reuse what is held here, so that a limit costs the hot path some arithmetic. The store
is asked a few times a second at most, for all limits at once: `core.tokens` decides there.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from uuid import UUID

from windlass.core.errors import ConfigError
from windlass.core.job import Head, Job, JobFilter, Json, Lane
from windlass.core.ledger import Ledger
from windlass.core.limits import OVERRIDE, Limit, Measure, Tokens
from windlass.core.outcomes import Outcome, Released, Snoozed
from windlass.core.plan import Allowance, Pool
from windlass.core.settle import Transition
from windlass.core.states import State
from windlass.core.tokens import Wish
from windlass.observe.logs import get_logger
from windlass.registry import Registry
from windlass.runtime.gates import Gate
from windlass.runtime.pace import PROMPT
from windlass.runtime.purses import Purse, reducer
from windlass.runtime.spent import Spent
from windlass.store import Store

log = get_logger("windlass.limits")
_PACE = 0.1
"""Seconds between two words with the store, at least."""
_LOOK = 0.5
"""Seconds after which it is looked again whether others want some, or have given some back."""
_HEAR = 1.0
"""Seconds after which it is looked again whether a person has changed a limit."""
_CENSUS = 1.0
"""Seconds after which it is looked again whether those who hold tokens are still there."""
_TURN = 0.005
"""Seconds that tokens which have cooled may wait for the next ones."""
_CHILD = 1.0
"""Seconds within which a job in a child process has started."""
_AT_ONCE = 100
_REMEMBERED = 100_000
_FOUND_AT_ONCE = 1_000
_Found = tuple[tuple[Purse, int], ...]
_Run = tuple[Job | None, _Found, float]
_NOTHING: _Run = (None, (), 0.0)
_GIVEN_BACK = (Released, Snoozed)


class Limits(Gate):
    """All limits of a worker's kinds, queues and resources."""

    name = "limits"

    def __init__(
        self,
        store: Store,
        registry: Registry,
        *,
        worker_id: Callable[[], str],
        rouse: Callable[[], None],
        pools: Mapping[str, Pool],
        slots: Callable[[], int],
        has_begun: Callable[[UUID], bool],
        lease: timedelta,
    ) -> None:
        super().__init__()
        _check(registry)
        self._has_begun = has_begun
        self._store = store
        self._registry = registry
        self._worker_id = worker_id
        self._rouse = rouse
        self._pools = pools
        self._slots = slots
        self._lease = lease.total_seconds()
        self._limits = dict(registry.limits)
        self._amounts: dict[str, int] = {}
        for kind in registry:
            resource, amount = registry[kind].resource or "", registry[kind].amount
            self._amounts[resource] = max(self._amounts.get(resource, 1), amount)
        self._overrides: Mapping[str, Json] = {}
        self._stirred = asyncio.Event()
        self._applied_at = self._heard_at = self._looked_at = self._counted_at = -math.inf
        self._forget("")

    def _forget(self, worker: str) -> None:
        """Begin anew under an id that holds nothing; what the last one held is not ours."""
        self._worker = worker
        self._purses: dict[tuple[str, Measure, str], Purse] = {}
        self._named: dict[str, Purse] = {}
        self._lanes: dict[tuple[str, str, str], _Found] = {}
        # By the identity of a job that is kept here, since to hash its id takes longer.
        self._running: dict[int, tuple[Job, _Found, float]] = {}
        self._unsettled: dict[int, tuple[Job, _Found, float]] = {}
        self._wanted: dict[Purse, int] = {}
        self._lacking: dict[Purse, float] = {}
        self._spent = Spent(self._wanted, self._lacking)
        self._over = False
        self._holders: frozenset[str] = frozenset()
        self._gone: frozenset[str] = frozenset()
        self._busy: dict[str, frozenset[str]] = {}

    # -- what the claimer and the runs say -----------------------------------------------------

    def allowances(self, lane: Lane) -> Iterable[Allowance]:
        found = self._of(lane.queue, lane.kind, lane.key)
        if not found:
            return ()
        now, allowed = self._now(), []
        for purse, amount in found:
            allowed.append(self._allowance(purse, amount, now))
            if allowed[-1].left < amount:
                # What comes after it is not asked for, and so goes back soon: two who each have a
                # part of what both need would wait for each other. All go in the same order.
                self._spent.note(lane, [each for each, _ in found[: len(allowed)]])
                break
        return allowed

    def unspent(self, heads: Iterable[Head]) -> list[Head]:
        return self._spent.leave_out(heads, self._now())

    def lets(self, lane: Lane) -> bool:
        found = self._of(lane.queue, lane.kind, lane.key)
        return all(purse.ledger.free >= amount for purse, amount in found)

    def _allowance(self, purse: Purse, amount: int, now: float) -> Allowance:
        ledger = purse.ledger
        ledger.tick(now)
        ledger.needed_at = now
        left = ledger.free if self._worker == self._worker_id() else 0
        if ledger.amount > 1 and purse.is_kept_for_others(amount, left, now):
            left = 0
        elif left < amount:
            self._lack(purse, amount, now)
        return Allowance(purse.name, left, amount, shared=self._is_shared(purse))

    def _is_shared(self, purse: Purse) -> bool:
        """Say whether a claim itself draws it down: not if some jobs use more of it than others."""
        return not purse.limit.keyed and purse.ledger.amount == 1

    def _lack(self, purse: Purse, amount: int, now: float) -> None:
        """Ask for tokens, unless it is known that there will be none before some time."""
        ledger = purse.ledger
        if ledger.held < ledger.tokens.capacity and purse.retry_at <= now:
            if purse not in self._wanted:
                self._wanted[purse] = amount
                self._stirred.set()
            return
        wake = purse.retry_at if purse.retry_at > now else now + _LOOK
        moved = ledger.next_tick
        wake = max(wake if moved is None else min(wake, moved), now + _TURN)
        if self._lacking.get(purse, math.inf) > wake:
            self._lacking[purse] = wake
            self._stirred.set()

    def reserve(self, reserves: Mapping[str, int]) -> None:
        for name, count in reserves.items():
            if (purse := self._named.get(name)) is not None:
                purse.ledger.reserved += count

    def unreserve(self, reserves: Mapping[str, int]) -> None:
        for name, count in reserves.items():
            if (purse := self._named.get(name)) is not None:
                # Fewer, if all was forgotten since.
                purse.ledger.reserved = max(purse.ledger.reserved - count, 0)

    def doubt(self, reserves: Mapping[str, int]) -> None:
        until = self._now() + self._lease
        for name, count in reserves.items():
            purse = self._named.get(name)
            if purse is not None and purse.limit.ordered:
                # A job may be ours without our knowing; until that is found out, none follows it.
                purse.ledger.doubt(count, until)

    def began(self, job: Job) -> None:
        found = self._of(job.queue, job.kind, job.key)
        if not found:
            return
        now, run = self._now(), id(job)
        self._running[run] = (job, found, now)
        for purse, amount in found:
            ledger = purse.ledger
            ledger.needed_at = now
            if purse.is_rate:
                ledger.start(run, amount, now)
            else:
                ledger.take(amount)

    def ended(self, job: Job, outcome: Outcome | Transition) -> None:
        run = id(job)
        _, found, began = self._running.pop(run, _NOTHING)
        for purse, amount in found:
            ledger = purse.ledger
            if purse.is_rate:
                if isinstance(outcome, _GIVEN_BACK) and not outcome.begun:
                    ledger.refund(run)
                else:
                    ledger.started(run, self._now())
            elif purse.limit.ordered:
                self._unsettled[run] = (job, found, began)
            else:
                ledger.bring(amount)
                if ledger.pressed:
                    self._mind(ledger)

    def _mind(self, ledger: Ledger) -> None:
        """Give back soon what has come back, and is to go to others."""
        if ledger.over and not self._over:
            self._over = True
            self._stirred.set()

    def settled(self, job: Job, move: Transition | None) -> None:
        if not self._unsettled:
            return
        _, found, began = self._unsettled.pop(id(job), _NOTHING)
        hold = None if move is None else move.hold
        for purse, amount in found:
            if purse.is_rate or not purse.limit.ordered:
                continue
            if hold is None:
                purse.ledger.bring(amount)
            else:
                purse.ledger.hold_back(amount, self._end_of(hold, job, began))
                self._lacking.pop(purse, None)  # It comes back sooner than was known, maybe.
            self._rouse()

    def _end_of(self, hold: timedelta | datetime, job: Job, began: float) -> float:
        """Return when a key is free again; an instant is by the store's clock, as of the claim."""
        if isinstance(hold, timedelta):
            return self._now() + hold.total_seconds()
        return began + (hold - (job.started_at or job.due_at)).total_seconds()

    def _has_come(self, run: int) -> bool:
        """Say whether a job has come to its handler; one that is not known has ended."""
        running = self._running.get(run)
        return running is None or self._has_begun(running[0].id)

    # -- what is limited by what ---------------------------------------------------------------

    def _of(self, queue: str, kind: str, key: str) -> _Found:
        found = self._lanes.get((queue, kind, key))
        if found is None:
            found = tuple(self._find(queue, kind, key))
            if len(self._lanes) > _REMEMBERED:
                self._lanes.clear()
            self._lanes[queue, kind, key] = found
        return found

    def _find(self, queue: str, kind: str, key: str) -> Iterator[tuple[Purse, int]]:
        slack = _CHILD if self._pools.get(kind) is Pool.CHILDREN else PROMPT
        for name, amount in self._registry.limited_by(kind, queue):
            limit = self._limits.get(name)
            if limit is not None:
                for measure, tokens in limit.tokens().items():
                    yield self._purse(limit, measure, key, tokens, slack), amount

    def _purse(
        self, limit: Limit, measure: Measure, key: str, tokens: Tokens, slack: float
    ) -> Purse:
        place = (limit.name, measure, key if limit.keyed else "")
        purse = self._purses.get(place)
        if purse is None:
            purse = Purse(limit, measure, place[2], self._ledger(limit, tokens, slack))
            self._purses[place] = self._named[purse.name] = purse
        return purse

    def _ledger(self, limit: Limit, tokens: Tokens, slack: float) -> Ledger:
        amount = self._amounts.get(limit.name, 1)
        return Ledger(tokens, slack, self._has_come, amount)

    # -- words with the store ------------------------------------------------------------------

    async def tick(self) -> float:
        worker = self._worker_id()
        if worker != self._worker:
            self._forget(worker)
        if not worker:
            return _PACE
        if (due := self._due()) > self._now():
            await self._wait(due)
            return 0
        await self._talk(worker)
        return 0

    async def round(self) -> None:
        worker = self._worker_id()
        if worker != self._worker:
            self._forget(worker)
        self._applied_at = -math.inf  # Whoever makes rounds by hand does so when there is reason.
        if self._due() <= self._now():
            await self._talk(worker)

    def looks_at(self) -> float | None:
        """Return when what is lacking has cooled, here or elsewhere."""
        times = [at for purse in self._lacking for at in (purse.free_at, purse.ledger.next_tick)]
        now = self._now()
        return min((at for at in times if at is not None and at > now), default=None)

    async def _talk(self, worker: str) -> None:
        await self._hear()
        await self._count_the_living()
        wishes = self._wishes(self._now())
        if wishes:
            await self._apply(worker, wishes)
        self._wake(self._now())

    async def stop(self) -> None:
        """End, and give back everything that no job has."""
        self._stirred.set()
        await super().stop()
        if self._worker and self._worker == self._worker_id():
            purses = [each for each in self._purses.values() if each.ledger.held]
            now = self._now()
            wishes = {each: each.ledger.wish(now, give=each.ledger.held) for each in purses}
            if wishes:
                await self._apply(self._worker, wishes)

    def _due(self) -> float:
        """Return when there is something to do, unless the claimer says so before."""
        due = min(self._lacking.values(), default=math.inf)
        if self._wanted or self._over:
            due = min(due, self._applied_at + _PACE)
        if self._purses:
            due = min(due, max(self._looked_at, self._applied_at) + _LOOK)
        return due

    async def _wait(self, due: float) -> None:
        self._stirred.clear()
        if self._stopping.is_set():
            return
        try:
            async with asyncio.timeout(None if due == math.inf else due - self._now()):
                await self._stirred.wait()
        except TimeoutError:
            return

    def _wishes(self, now: float) -> dict[Purse, Wish]:
        """Return what to say: wants first, then what can be spared, and the rest if it is time."""
        wishes: dict[Purse, Wish] = {}
        if self._wanted and now >= self._applied_at + _PACE:
            for purse in list(self._wanted)[:_AT_ONCE]:
                amount = self._wanted.pop(purse)
                self._lacking[purse] = now + _LOOK
                wishes[purse] = purse.want(amount, slots=self._slots(), now=now)
        if now >= max(self._looked_at, self._applied_at) + _LOOK or wishes or self._over:
            self._looked_at, self._over = now, False
            for place, purse in list(self._purses.items()):
                if len(wishes) >= 2 * _AT_ONCE:
                    self._over = True  # The rest of them soon; so those come first then.
                    break
                if purse not in wishes and not self._is_over(purse, now):
                    is_needed = purse in self._lacking or purse in self._wanted
                    give = purse.surplus(now, is_needed=is_needed)
                    wishes[purse] = purse.ledger.wish(now, give=give)
                    self._purses[place] = self._purses.pop(place)
        return wishes

    def _is_over(self, purse: Purse, now: float) -> bool:
        """Forget a purse that is empty, and that nobody needed lately; say whether it was so."""
        is_needed = purse in self._lacking or purse in self._wanted or purse.was_needed(now)
        if purse.ledger.unconfirmed:
            return False  # What it gives back is not known to have arrived.
        if purse.ledger.held or is_needed:
            return not purse.ledger.held
        del self._purses[purse.limit.name, purse.measure, purse.key], self._named[purse.name]
        self._lanes.clear()
        return True

    async def _apply(self, worker: str, wishes: Mapping[Purse, Wish]) -> None:
        decide = reducer(worker, wishes, gone=self._gone, busy=dict(self._busy))
        names = sorted({purse.record for purse in wishes})
        self._applied_at = self._now()
        answer = (await self._store.apply(names, decide)).answer
        if worker != self._worker_id():
            return
        now, came = self._now(), False
        for purse, reply in answer.replies.items():
            wish = wishes[purse]
            if not purse.ledger.take_in(wish, reply):
                # We were thought dead, and what we held is with others by now.
                self._forget(worker)
                return
            if reply.granted:
                self._lacking.pop(purse, None)
                came = True
            elif wish.most:
                wait = _LOOK if reply.after is None else min(reply.after, _LOOK)
                purse.retry_at = self._lacking[purse] = now + max(wait, _TURN)
                purse.free_at = None if reply.after is None else now + reply.after
        self._holders |= answer.holders
        if came:
            self._rouse()

    def _wake(self, now: float) -> None:
        """Have the claimer look again whose tokens have cooled, or may be had by now."""
        ready = [purse for purse, wake in self._lacking.items() if wake <= now]
        for purse in ready:
            del self._lacking[purse]
        if ready:
            self._rouse()

    async def _hear(self) -> None:
        """Learn what people have changed."""
        if self._now() < self._heard_at + _HEAR:
            return
        self._heard_at = self._now()
        told = await self._store.records(OVERRIDE)
        if told == self._overrides:
            return
        self._overrides = told
        for name, limit in self._registry.limits.items():
            changed = limit.changed(told.get(OVERRIDE + name, {}))
            if changed != self._limits[name]:
                log.info("limit.changed", limit=name, **shown(changed))
                self._limits[name] = changed
        self._lanes.clear()
        self._spent.clear()
        for purse in self._purses.values():
            tokens = self._limits[purse.limit.name].tokens().get(purse.measure)
            if tokens is not None:
                purse.ledger.change(tokens)
        self._rouse()

    async def _count_the_living(self) -> None:
        """Find out which of those who hold what we want have lost their lease for good."""
        short = bool(self._wanted) or bool(self._lacking)
        if not (self._holders and short and self._now() >= self._counted_at + _CENSUS):
            return
        self._counted_at = self._now()
        # Whoever held some before this look had registered before: who is not listed is gone.
        left = {each.info.id for each in await self._store.workers() if not each.ended}
        gone, self._holders = self._holders - left, self._holders & left
        # Kept, since an id that is gone never comes back, and other records may name it.
        self._gone |= gone
        if gone:
            log.info("tokens.freed", workers=sorted(gone))
            for limit in self._limits.values():
                if limit.ordered:
                    self._busy[limit.name] = await self._keys_running(limit)

    async def _keys_running(self, limit: Limit) -> frozenset[str]:
        """Return the keys of jobs that run, or that a dead worker left and nobody settled yet."""
        keys: set[str] = set()
        for kind in self._registry.ordered:
            own = self._registry[kind].limit
            if own is not None and own.name == limit.name:
                keys |= {job.key async for job in self._jobs_running(kind)}
        return frozenset(keys)

    async def _jobs_running(self, kind: str) -> AsyncIterator[Job]:
        which, after = JobFilter(states=(State.RUNNING,), kind=kind), None
        while True:
            page = await self._store.find(which, limit=_FOUND_AT_ONCE, after=after)
            for job in page.jobs:
                yield job
            if (after := page.after) is None:
                return


def _check(registry: Registry) -> None:
    for kind in registry:
        registration = registry[kind]
        if registration.resource is None:
            continue
        limit = registry.limits.get(registration.resource)
        if limit is None:
            raise ConfigError(
                f"kind {kind!r} needs the resource {registration.resource!r}, which is not "
                f"defined; is app.limit({registration.resource!r}, concurrency=...) imported?"
            )
        for measure, tokens in limit.tokens().items():
            if tokens.capacity < registration.amount:
                raise ConfigError(
                    f"kind {kind!r} uses {registration.amount} of {limit.name!r}, which has "
                    f"{tokens.capacity} by its {measure.value}: it could never run"
                )


def shown(limit: Limit) -> dict[str, object]:
    """Return a limit's parts as people write them."""
    return {
        "rate": None if limit.rate is None else str(limit.rate),
        "burst": limit.burst,
        "concurrency": limit.concurrency,
    }
