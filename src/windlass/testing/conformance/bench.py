"""Owns the bench for checking laws: a store, its clock, and helpers for common steps."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Protocol, TypeVar
from uuid import UUID

from windlass.core.changes import Changes
from windlass.core.claims.lanes import Ask, Claim
from windlass.core.jobs.ids import Origin, job_id
from windlass.core.jobs.job import Attempt, Enqueued, Job, Lane, NewJob
from windlass.core.jobs.moves import Move, Verb
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import State
from windlass.core.workers import WorkerInfo, WorkerPulse
from windlass.store.protocol import Store

E = TypeVar("E", bound=Exception)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
LEASE = timedelta(seconds=30)
PROMPT = 10.0
"""Seconds of real time within which prompt events happen, also on a slow machine."""
MANY = 1_000


class Clock(Protocol):
    """A store's clock that the laws can move; it stands still by itself."""

    def __call__(self) -> datetime:
        """Return the store's time."""

    async def advance(self, span: timedelta) -> None:
        """Move the store's time; a negative span moves it back."""


class ManualClock:
    """A clock for stores that are given one as `clock=`."""

    def __init__(self, start: datetime = datetime(2030, 1, 1, 12, tzinfo=UTC)) -> None:
        self._now = start

    def __call__(self) -> datetime:
        """Return the time to which the clock was set."""
        return self._now

    async def advance(self, span: timedelta) -> None:
        """Move the time."""
        self._now += span


class Bench:
    """A store under test, with its clock.

    `size` is how many jobs may wait in a bounded store. `sibling` opens the same jobs a second
    time, as another process would; shared stores have one.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        size: int | None = None,
        sibling: Callable[[], AbstractAsyncContextManager[Store]] | None = None,
    ) -> None:
        self.store = store
        self.clock = clock
        self._size = size
        self._sibling = sibling
        self._numbers = count(1)
        self.origin: Origin | None = Origin(os.getpid())
        """Marks jobs as sent for the first time."""

    @property
    def size(self) -> int:
        """How many jobs may wait in the bounded store."""
        assert self._size is not None, "a bounded store's bench says its size: Bench(..., size=n)"
        return self._size

    def sibling(self) -> AbstractAsyncContextManager[Store]:
        """Open the same jobs a second time."""
        assert self._sibling is not None, "a shared store's bench has one: Bench(..., sibling=open)"
        return self._sibling()

    # -- time ----------------------------------------------------------------------------------

    def now(self) -> datetime:
        """Return the store's time."""
        return self.clock()

    async def advance(self, span: timedelta) -> None:
        """Move the store's time."""
        await self.clock.advance(span)

    # -- jobs ----------------------------------------------------------------------------------

    def number(self) -> int:
        """Return a number that this bench has not used: for tokens, kinds, names."""
        return next(self._numbers)

    def new(self, **fields: Any) -> NewJob:
        """Make a job with a fresh id, younger than all before it."""
        milliseconds = int(self.now().timestamp() * 1_000)
        base: dict[str, Any] = {
            "id": job_id(milliseconds, self.number()),
            "kind": "work",
            "payload": b"{}",
            "origin": self.origin,
        }
        return NewJob(**base | fields)

    async def add(self, **fields: Any) -> Enqueued:
        """Enqueue one job, and return the result."""
        (answer,) = await self.store.enqueue([self.new(**fields)])
        return answer

    async def enqueue(self, **fields: Any) -> UUID:
        """Enqueue one job that is new, and return its id."""
        answer = await self.add(**fields)
        assert not answer.is_duplicate, "a new job was taken for an existing one"
        return answer.id

    async def job(self, job: UUID) -> Job:
        """Return a job that exists."""
        existing = await self.store.get(job)
        assert existing is not None, f"job {job} is gone"
        return existing

    async def state(self, job: UUID) -> State:
        """Return the state of a job that exists."""
        return (await self.job(job)).state

    # -- workers -------------------------------------------------------------------------------

    async def worker(self, *, lease: timedelta = LEASE, name: str = "") -> str:
        """Register a worker with a fresh id, and return that."""
        worker = name or f"worker-{self.number()}"
        await self.store.register(
            WorkerInfo(
                id=worker, name=worker, host="here", pid=1, release="1", lease=lease, slots=MANY
            )
        )
        return worker

    async def heartbeat(self, worker: str, pulse: WorkerPulse | None = None) -> bool:
        """Renew a lease as workers do, from a thread."""
        limit = timedelta(seconds=PROMPT)
        return await asyncio.to_thread(self.store.heartbeat, worker, pulse or WorkerPulse(), limit)

    async def season(self, *workers: str) -> None:
        """Let a little more than a lease pass, in which only these workers renew theirs."""
        for _ in range(4):
            await self.advance(LEASE / 3)
            for worker in workers:
                assert await self.heartbeat(worker), f"the lease of {worker} was not renewed"

    async def seasoned(self) -> str:
        """Register a worker and let it earn the right to rescue; all other leases run out."""
        worker = await self.worker()
        await self.season(worker)
        return worker

    # -- claims --------------------------------------------------------------------------------

    async def claim(
        self, worker: str, lane: Lane | None = None, *, most: int = MANY, token: int | None = None
    ) -> list[Job]:
        """Claim from one lane, by default the default one."""
        ask = Ask(lane=lane or Lane("default", "work"), count=most)
        return await self.claim_all(worker, Claim(asks=(ask,)), token=token)

    async def claim_all(self, worker: str, claim: Claim, *, token: int | None = None) -> list[Job]:
        """Claim with a fresh token."""
        return await self.store.claim(claim, worker=worker, token=token or self.number())

    async def start(self, worker: str | None = None, **fields: Any) -> Job:
        """Enqueue a job and claim it: under a worker of its own, in a lane of its own."""
        job = await self.enqueue(**{"kind": f"kind-{self.number()}"} | fields)
        return await self.start_again(job, worker)

    async def start_again(self, job: UUID, worker: str | None = None) -> Job:
        """Claim this job, which is the next in its lane."""
        await self.store.promote(MANY)
        lane = (await self.job(job)).lane
        jobs = await self.claim(worker or await self.worker(), lane, most=1)
        assert [claimed.id for claimed in jobs] == [job], "the next job of the lane was not claimed"
        return jobs[0]

    async def leave(self, job: Job, state: State = State.COMPLETED, **fields: Any) -> bool:
        """Settle a claimed job into a state; return whether it was moved."""
        (moved,) = await self.store.settle([leaving(job, state, **fields)])
        return moved

    async def move(self, verb: Verb, job: UUID, **fields: Any) -> Job | None:
        """Apply a move to a job; moves need no token."""
        changes = Changes(answer=None, moves=[Move(verb=verb, id=job, **fields)])
        applied = await self.store.apply([], lambda _records, _now: changes)
        (moved,) = applied.moved
        return moved

    async def job_in(self, state: State, **fields: Any) -> Job:
        """Bring a new job into a state, in a lane of its own."""
        if state is State.SCHEDULED:
            return await self.job(await self.enqueue(due=HOUR, **fields))
        if state is State.PENDING:
            return await self.job(await self.enqueue(**{"kind": f"kind-{self.number()}"} | fields))
        started = await self.start(**fields)
        if state is not State.RUNNING:
            assert await self.leave(started, state), f"running -> {state} was refused"
        return await self.job(started.id)


def leaving(job: Job, state: State = State.COMPLETED, **fields: Any) -> Transition:
    """Return the transition of a claimed job into a state, by default under its own token."""
    assert job.token is not None, "only a claimed job can be settled"
    base: dict[str, Any] = {"id": job.id, "token": job.token, "state": state}
    return Transition(**base | fields)


def attempt_of(job: Job, outcome: str = "failed") -> Attempt:
    """Return the history entry of an attempt."""
    return Attempt(
        number=job.attempt,
        worker=job.worker,
        started_at=job.started_at,
        duration=SECOND,
        outcome=outcome,
    )


async def raised(expected: type[E], attempt: Awaitable[object]) -> E:
    """Return the error that an attempt raises, as it should."""
    try:
        await attempt
    except expected as error:
        return error
    raise AssertionError(f"{expected.__name__} was not raised")


def ids(jobs: Sequence[Job]) -> list[UUID]:
    """Return the ids of jobs, in their order."""
    return [job.id for job in jobs]
