"""Owns the breakers of a worker: which jobs they let start, and how outcomes are
reported to them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from uuid import UUID

from windlass.core.changes import Changes
from windlass.core.claims.allotment import Allowance
from windlass.core.jobs.job import Job, Lane
from windlass.core.jobs.outcomes import Failed, Outcome, Succeeded
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import State
from windlass.core.policies.breaker import Rule
from windlass.core.policies.breaker_record import (
    RECORD,
    BreakerState,
    BreakerStatus,
    Event,
    react,
    read_status,
    record_of,
)
from windlass.core.records import Json
from windlass.store import Store
from windlass.worker.engine.settler import Settler
from windlass.worker.policies.breaker_view import BreakerView
from windlass.worker.policies.gate import Gate
from windlass.worker.state import WorkerState

_POLL_SECONDS = 1.0
"""Seconds between two reads of the records."""
_IDLE_POLL_SECONDS = 5.0
"""The same while only implicit breakers of kinds are known, and all of them are closed."""
_MIN_PAUSE_SECONDS = 0.02
_SUCCESS_GROUP_SECONDS = 0.1
"""Seconds for which successes are collected, since they are less urgent than failures."""


class BreakerGate(Gate):
    """Starts no job whose breaker is open, and only probes where the breaker is half-open.

    A failure is reported at once. A success is reported only where it changes the breaker, so that
    closed breakers cost next to nothing.
    """

    name = "breakers"

    def __init__(
        self,
        store: Store,
        rules: Mapping[str, Rule],
        *,
        state: WorkerState,
        settler: Settler,
    ) -> None:
        super().__init__()
        self._store = store
        self._state = state
        self._settler = settler
        self._watches = _watches(rules)
        self._by_kind = {kind: self._watches[rule.name] for kind, rule in rules.items()}
        self._by_record = {watch.record: watch for watch in self._watches.values()}
        self._probes: dict[UUID, BreakerView] = {}
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._soon: asyncio.TimerHandle | None = None
        self._look_at = self._now()
        self._clock: tuple[datetime, float] | None = None
        self._was = ""

    # -- called by the claimer and the engine --------------------------------------------------

    def bars(self, lane: Lane) -> bool:
        """Return whether the breaker of a lane's kind is open."""
        watch = self._by_kind.get(lane.kind)
        return watch is not None and watch.state is BreakerState.OPEN

    def may_bar(self, kind: str) -> bool:
        """Return whether the breaker of a kind is not closed, or not known yet."""
        watch = self._by_kind.get(kind)
        return watch is not None and not watch.is_closed

    def allowances(self, lane: Lane) -> Iterable[Allowance]:
        """Allow no jobs of a kind whose breaker is open, or not known yet."""
        watch = self._by_kind.get(lane.kind)
        if watch is None or watch.is_closed:
            return ()
        if watch.state is not BreakerState.HALF_OPEN:
            return (Allowance(watch.record, 0),)
        watch.wanted_at = self._now()
        if watch.left == 0 and watch.has_news(self._state.id, watch.wanted_at):
            self._news.set()
        return (Allowance(watch.record, watch.left),)

    def reserve(self, reserves: Mapping[str, int]) -> None:
        """Reserve probes for a claim under way."""
        self._reserve(reserves, 1)

    def unreserve(self, reserves: Mapping[str, int]) -> None:
        """Release the probes that were reserved for a claim."""
        self._reserve(reserves, -1)

    def began(self, job: Job) -> None:
        """Make a job a probe if it could only start as one."""
        watch = self._by_kind.get(job.kind)
        # Also if the breaker opened during the claim: the probe is held for as long as the job
        # runs.
        if watch is not None and not watch.is_closed and watch.left > 0:
            watch.running += 1
            self._probes[job.id] = watch

    def ended(self, job: Job, outcome: Outcome | Transition) -> None:
        """Record an outcome that says something about the dependency behind the breaker."""
        watch = self._by_kind.get(job.kind)
        if watch is None:
            return
        probe = self._probes.pop(job.id, None) is not None
        if probe:
            watch.running -= 1
            self._news.set()
        if _has_succeeded(outcome):
            if watch.succeeded(probe=probe):
                self._report_soon()
        elif self._has_tripped(job, outcome) and watch.failed(_why(job, outcome), probe=probe):
            self._news.set()

    def _has_tripped(self, job: Job, outcome: Outcome | Transition) -> bool:
        return (
            outcome.trips if isinstance(outcome, Transition) else self._settler.trips(job, outcome)
        )

    def _reserve(self, reserves: Mapping[str, int], sign: int) -> None:
        for name, count in reserves.items():
            watch = self._by_record.get(name)
            if watch is not None:
                watch.reserved += sign * count

    def _report_soon(self) -> None:
        if self._soon is None:
            self._soon = self._loop.call_later(_SUCCESS_GROUP_SECONDS, self._news.set)

    # -- the loop ------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stop once the records have all outcomes, and no probe is held any more."""
        self._news.set()
        await super().stop()
        if worker := self._state.id:
            for watch in self._watches.values():
                watch.wanted_at = float("-inf")
                if watch.has_news(worker, self._now()):
                    await self._report(watch, worker)

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
        return _MIN_PAUSE_SECONDS if self._state.id else _POLL_SECONDS

    async def round(self) -> None:
        worker = self._state.id
        if not worker:
            return  # Between two leases: the probes that were held belong to no worker.
        if self._now() >= self._look_at:
            await self._read_breakers(worker)
        for watch in self._watches.values():
            moment = self._now()
            if watch.has_news(worker, moment) or watch.is_cooled(self._store_time()):
                await self._report(watch, worker)

    async def _wait(self) -> None:
        """Wait for outcomes to report, for the next read, or for the end of a cooldown."""
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

    async def _read_breakers(self, worker: str) -> None:
        """Read all breakers, and which workers that hold probes are gone."""
        records = await self._store.records(RECORD)
        # Read again where it is needed: the store's clock may have been set since.
        self._clock = None
        for watch in self._watches.values():
            is_new = watch.status is None
            self._learn(watch, read_status(watch.rule.name, records.get(watch.record)), worker)
            if is_new:
                watch.enlist()
        self._look_at = self._now() + self._poll_seconds()
        if worker != self._was:
            lost, self._was = self._was, worker
            for watch in self._watches.values():
                watch.gone |= {lost} & watch.holders
        starved = [w for w in self._watches.values() if w.is_starved(worker, self._now())]
        if starved:
            known = {each.info.id for each in await self._store.workers() if not each.ended}
            for watch in starved:
                watch.gone |= watch.holders - known

    def _poll_seconds(self) -> float:
        """Return the seconds until the next read.

        A worker that meets a system error reports it at once, and reads the breaker by that.
        """
        quiet = all(each.is_own and each.is_closed for each in self._watches.values())
        return _IDLE_POLL_SECONDS if quiet else _POLL_SECONDS

    async def _report(self, watch: BreakerView, worker: str) -> None:
        """Let the reducer decide the state of a breaker by the outcomes of this worker."""
        news = watch.take_news(worker, self._now())
        before = self._now()
        try:
            applied = await self._store.apply(
                [watch.record],
                lambda known, now: _decide(watch, news, worker, known.get(watch.record), now),
            )
        except BaseException:
            # If the write succeeded nevertheless, a failure counts twice: better than never.
            watch.put_back(news)
            raise
        watch.reported(news)
        status, now = applied.answer
        self._clock = (now, before)
        self._learn(watch, status, worker)

    def _learn(self, watch: BreakerView, status: BreakerStatus, worker: str) -> None:
        if watch.learn(status, worker):
            self._state.claim_again.set()
        if not watch.is_closed:
            self._look_at = min(self._look_at, self._now() + _POLL_SECONDS)

    def _store_time(self) -> datetime | None:
        if self._clock is None:
            return None
        read, at = self._clock
        return read + timedelta(seconds=self._now() - at)


def _watches(rules: Mapping[str, Rule]) -> dict[str, BreakerView]:
    kinds: dict[str, list[str]] = {}
    for kind, rule in rules.items():
        kinds.setdefault(rule.name, []).append(kind)
    return {rule.name: BreakerView(rule, kinds[rule.name]) for rule in rules.values()}


def _decide(
    watch: BreakerView, news: list[Event], worker: str, record: Json | None, now: datetime
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
    """Name the class of the error; its message is in the job, and may be confidential."""
    match outcome:
        case Failed(error=error):
            what = error.type
        case Transition(error=error) if error is not None:
            what = error.type
        case _:
            what = "TimeoutError"
    return f"{what} in job {job.id} of kind {job.kind}"
