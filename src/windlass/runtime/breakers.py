"""Owns the breakers in a worker: what they let start, and how they learn of what happened to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from uuid import UUID

from windlass.core.breaker import Rule
from windlass.core.breaker_record import (
    RECORD,
    BreakerState,
    BreakerStatus,
    Event,
    react,
    read_status,
    record_of,
)
from windlass.core.changes import Changes
from windlass.core.job import Job, Json, Lane
from windlass.core.outcomes import Failed, Outcome, Succeeded
from windlass.core.plan import Allowance
from windlass.core.settle import Transition
from windlass.core.states import State
from windlass.runtime.gates import Gate
from windlass.runtime.watch import Watch
from windlass.store import Store

_LOOK = 1.0
"""Seconds between two looks at the records."""
_SELDOM = 5.0
"""The same as long as no breaker is known but the kinds' own, and all of those are closed."""
_BREATH = 0.02
_GROUP = 0.1
"""Seconds within which successes are gathered, since they hurry less than failures."""


class Breakers(Gate):
    """Lets no job start whose breaker is open, and only probes where it is half-open.

    A failure is told at once. A success is told only where it changes anything, so that breakers
    which are closed cost next to nothing.
    """

    name = "breakers"

    def __init__(
        self,
        store: Store,
        rules: Mapping[str, Rule],
        *,
        worker_id: Callable[[], str],
        rouse: Callable[[], None],
        trips: Callable[[Job, Outcome], bool],
    ) -> None:
        super().__init__()
        self._store = store
        self._worker_id = worker_id
        self._rouse = rouse
        self._trips = trips
        self._watches = _watches(rules)
        self._by_kind = {kind: self._watches[rule.name] for kind, rule in rules.items()}
        self._by_record = {watch.record: watch for watch in self._watches.values()}
        self._probes: dict[UUID, Watch] = {}
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._soon: asyncio.TimerHandle | None = None
        self._look_at = self._now()
        self._clock: tuple[datetime, float] | None = None
        self._was = ""

    # -- what the claimer and the worker ask and tell ------------------------------------------

    def bars(self, lane: Lane) -> bool:
        """Bar a kind whose breaker is open."""
        watch = self._by_kind.get(lane.kind)
        return watch is not None and watch.state is BreakerState.OPEN

    def allowances(self, lane: Lane) -> Iterable[Allowance]:
        """Allow nothing of a kind whose breaker is open, or not known yet."""
        watch = self._by_kind.get(lane.kind)
        if watch is None or watch.is_closed:
            return ()
        if watch.state is not BreakerState.HALF_OPEN:
            return (Allowance(watch.record, 0),)
        watch.wanted_at = self._now()
        if watch.left == 0 and watch.has_news(self._worker_id(), watch.wanted_at):
            self._news.set()
        return (Allowance(watch.record, watch.left),)

    def reserve(self, reserves: Mapping[str, int]) -> None:
        """Keep probes for a claim under way."""
        self._reserve(reserves, 1)

    def unreserve(self, reserves: Mapping[str, int]) -> None:
        """Let go of them again."""
        self._reserve(reserves, -1)

    def began(self, job: Job) -> None:
        """Make a job a probe, if it could start only as one."""
        watch = self._by_kind.get(job.kind)
        # Also if it was opened during the claim: the probe is held for as long as the job runs.
        if watch is not None and not watch.is_closed and watch.left > 0:
            watch.running += 1
            self._probes[job.id] = watch

    def ended(self, job: Job, outcome: Outcome | Transition) -> None:
        """Take notice of what tells how it stands with what the job depends on."""
        watch = self._by_kind.get(job.kind)
        if watch is None:
            return
        probe = self._probes.pop(job.id, None) is not None
        if probe:
            watch.running -= 1
            self._news.set()
        if _has_succeeded(outcome):
            if watch.succeeded(probe=probe):
                self._tell_soon()
        elif self._has_tripped(job, outcome) and watch.failed(_why(job, outcome), probe=probe):
            self._news.set()

    def _has_tripped(self, job: Job, outcome: Outcome | Transition) -> bool:
        return outcome.trips if isinstance(outcome, Transition) else self._trips(job, outcome)

    def _reserve(self, reserves: Mapping[str, int], sign: int) -> None:
        for name, count in reserves.items():
            watch = self._by_record.get(name)
            if watch is not None:
                watch.reserved += sign * count

    def _tell_soon(self) -> None:
        if self._soon is None:
            self._soon = self._loop.call_later(_GROUP, self._news.set)

    # -- the round -----------------------------------------------------------------------------

    async def stop(self) -> None:
        """End once the records know what happened here, and that no probe is held any more."""
        self._news.set()
        await super().stop()
        if worker := self._worker_id():
            for watch in self._watches.values():
                watch.wanted_at = float("-inf")
                if watch.has_news(worker, self._now()):
                    await self._tell(watch, worker)

    def go_by(self, now: Callable[[], float]) -> None:
        super().go_by(now)
        self._look_at = now()

    def looks_at(self) -> float | None:
        now = self._store_time()
        ends = [watch.left_open(now) for watch in self._watches.values()]
        left = min((end.total_seconds() for end in ends if end is not None), default=None)
        return None if left is None else self._now() + left

    async def tick(self) -> float:
        await self._wait()
        await self.round()
        return _BREATH if self._worker_id() else _LOOK

    async def round(self) -> None:
        worker = self._worker_id()
        if not worker:
            return  # Between two leases: whatever was held is held by nobody.
        if self._now() >= self._look_at:
            await self._look(worker)
        for watch in self._watches.values():
            moment = self._now()
            if watch.has_news(worker, moment) or watch.is_cooled(self._store_time()):
                await self._tell(watch, worker)

    async def _wait(self) -> None:
        """Wait for news, for the next look, or for the end of a cooldown."""
        now, moment = self._store_time(), self._now()
        ends = [watch.left_open(now) for watch in self._watches.values()]
        waits = [self._look_at - moment, *(end.total_seconds() for end in ends if end is not None)]
        try:
            async with asyncio.timeout(max(min(waits), 0)):
                await self._news.wait()
        except TimeoutError:
            pass
        self._news.clear()
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None

    async def _look(self, worker: str) -> None:
        """Learn how all breakers stand, and who is gone that holds what jobs here wait for."""
        records = await self._store.records(RECORD)
        # Asked for anew, where it matters: the store's clock may have been set since.
        self._clock = None
        for watch in self._watches.values():
            is_new = watch.status is None
            self._learn(watch, read_status(watch.rule.name, records.get(watch.record)), worker)
            if is_new:
                watch.enlist()
        self._look_at = self._now() + self._rest()
        if worker != self._was:
            lost, self._was = self._was, worker
            for watch in self._watches.values():
                watch.gone |= {lost} & watch.holders
        starved = [w for w in self._watches.values() if w.is_starved(worker, self._now())]
        if starved:
            known = {each.info.id for each in await self._store.workers() if not each.ended}
            for watch in starved:
                watch.gone |= watch.holders - known

    def _rest(self) -> float:
        """Return how long the next look may wait.

        Whoever meets a system error tells of it at once, and hears by that how it stands.
        """
        quiet = all(each.is_own and each.is_closed for each in self._watches.values())
        return _SELDOM if quiet else _LOOK

    async def _tell(self, watch: Watch, worker: str) -> None:
        """Let the reducer decide what has become of a breaker by what happened here."""
        news = watch.take_news(worker, self._now())
        before = self._now()
        try:
            applied = await self._store.apply(
                [watch.record],
                lambda known, now: _decide(watch, news, worker, known.get(watch.record), now),
            )
        except BaseException:
            # Should it have happened all the same, a failure counts twice: better than never.
            watch.put_back(news)
            raise
        watch.told(news)
        status, now = applied.answer
        self._clock = (now, before)
        self._learn(watch, status, worker)

    def _learn(self, watch: Watch, status: BreakerStatus, worker: str) -> None:
        if watch.learn(status, worker):
            self._rouse()
        if not watch.is_closed:
            self._look_at = min(self._look_at, self._now() + _LOOK)

    def _store_time(self) -> datetime | None:
        """Return the store's time as far as it is known here."""
        if self._clock is None:
            return None
        told, at = self._clock
        return told + timedelta(seconds=self._now() - at)


def _watches(rules: Mapping[str, Rule]) -> dict[str, Watch]:
    kinds: dict[str, list[str]] = {}
    for kind, rule in rules.items():
        kinds.setdefault(rule.name, []).append(kind)
    return {rule.name: Watch(rule, kinds[rule.name]) for rule in rules.values()}


def _decide(
    watch: Watch, news: list[Event], worker: str, record: Json | None, now: datetime
) -> Changes[tuple[BreakerStatus, datetime]]:
    before = read_status(watch.rule.name, record)
    after = react(before, news, rule=watch.rule, by=worker, now=now)
    changed = {} if after == before else {watch.record: record_of(after)}
    return Changes(answer=(after, now), records=changed)


def _has_succeeded(outcome: Outcome | Transition) -> bool:
    if isinstance(outcome, Transition):
        return outcome.state is State.COMPLETED
    return isinstance(outcome, Succeeded)


def _why(job: Job, outcome: Outcome | Transition) -> str:
    """Name the error without its message, which is in the job, and may be confidential."""
    match outcome:
        case Failed(error=error):
            what = error.type
        case Transition(error=error) if error is not None:
            what = error.type
        case _:
            what = "TimeoutError"
    return f"{what} in job {job.id} of kind {job.kind}"
