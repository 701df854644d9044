"""Lanes whose tokens are used up cost a plan next to nothing, and are missed by none."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from tests.support.app_on_store import in_state, serving, until
from tests.support.worker_state import RecordingState
from windlass import State, Windlass
from windlass.core.claims.allotment import Allowance
from windlass.core.claims.lanes import Head
from windlass.core.claims.plan import Policies, plan
from windlass.core.claims.room import Pool, Room
from windlass.core.jobs.job import Job, Lane
from windlass.core.jobs.outcomes import Succeeded
from windlass.store.memory import MemoryStore
from windlass.worker.policies.gate import Gate, Gates
from windlass.worker.policies.limit_gate import LimitGate
from windlass.worker.policies.limit_tokens import SPARE_SECONDS

KEYS = [f"k{number}" for number in range(100)]
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Bench:
    """A worker's limits and its plans, of an app whose jobs are limited by key."""

    def __init__(self, **options: Any) -> None:
        app = Windlass("memory://")
        app.limit("gpu", concurrency=2)

        async def book(account: str) -> None:
            assert account

        app.job(key="account", **options)(book)
        self.limits = LimitGate(
            MemoryStore(),
            app.registry,
            state=RecordingState("me", slots=1_000, book=Pool.LOOP),
            lease=timedelta(minutes=1),
        )
        self.looked: list[str] = []
        self.gates = Gates([self.limits])
        self.policies = Policies(
            kinds={"book": Pool.LOOP}, allowances=self._allowances, unspent=self.gates.unspent
        )

    def _allowances(self, lane: Lane) -> Any:
        self.looked.append(lane.key)
        return self.gates.allowances(lane)

    def plan(self) -> list[str]:
        """Plan once, and return the keys that were asked; `looked` are those that cost time."""
        self.looked.clear()
        heads = [Head(lane=_lane(key), position=NOON) for key in KEYS]
        claim = plan(heads, self.policies, Room(slots=1_000, threads=0), at_most=1_000)
        return [ask.lane.key for ask in claim.asks]

    async def draw(self) -> None:
        """Have the store grant all tokens that are needed, and then let nobody talk to it."""
        self.limits.start()
        await until(lambda: self.plan() == KEYS)
        assert self.limits._task is not None
        self.limits._task.cancel()
        await asyncio.wait({self.limits._task})

    def start(self, key: str) -> Job:
        """Let a job of a key begin."""
        job = Job(
            id=uuid4(),
            kind="book",
            queue="default",
            priority=0,
            key=key,
            state=State.RUNNING,
            payload=b"{}",
            due_at=NOON,
            created_at=NOON,
            started_at=NOON,
        )
        self.limits.began(job)
        return job


def _lane(key: str) -> Lane:
    return Lane("default", "book", 0, key)


def test_only_keys_that_may_have_got_a_token_are_looked_at() -> None:
    """Prevents: each of thousands of keys costs every plan its time, while all their jobs run."""

    async def main() -> None:
        bench = Bench(concurrency=1)
        await bench.draw()
        jobs = [bench.start(key) for key in KEYS]
        assert bench.plan() == []
        assert bench.looked == KEYS
        assert bench.plan() == []
        assert bench.looked == [], "all have theirs, and nobody has brought one back"
        bench.limits.ended(jobs[7], Succeeded())
        assert bench.plan() == [KEYS[7]]
        assert bench.looked == [KEYS[7]]

    asyncio.run(main())


def test_a_key_is_looked_at_once_its_token_has_cooled_though_the_store_does_not_answer() -> None:
    """Prevents: who waits for the store's word does not see what time alone has brought."""

    async def main() -> None:
        bench = Bench(rate="1/s")
        await bench.draw()
        for key in KEYS:
            bench.limits.ended(bench.start(key), Succeeded())
        assert bench.plan() == []
        assert bench.plan() == []
        assert bench.looked == []
        await until(lambda: bench.plan() == KEYS, within=60)

    asyncio.run(main())


def test_a_key_that_waits_for_its_token_keeps_what_it_has_of_another_limit() -> None:
    """Prevents: a token is given back, since its lane is not looked at while it lacks another."""

    async def main() -> None:
        bench = Bench(concurrency=1, rate="100/s")
        await bench.draw()
        for key in KEYS:
            bench.start(key)
        assert bench.plan() == []
        later = bench.limits._now() + 0.6 * SPARE_SECONDS
        bench.limits.go_by(lambda: later)
        assert bench.plan() == []
        assert bench.looked == []
        assert all(
            each.was_needed(later + 0.6 * SPARE_SECONDS)
            for each in bench.limits._requests.held.values()
        )

    asyncio.run(main())


def test_lanes_that_use_many_units_are_part_of_every_plan() -> None:
    """Prevents: what is kept for those who starve goes to others, as if nobody asked any more."""

    async def main() -> None:
        bench = Bench(limit="gpu", units=2)
        for _ in range(3):
            assert bench.plan() == []
            assert bench.looked == KEYS

    asyncio.run(main())


def test_tokens_after_a_missing_one_are_not_asked_for() -> None:
    """Prevents: two workers that each have a part of what both need, and wait for the other's."""

    async def main() -> None:
        bench = Bench(concurrency=1, limit="gpu")
        assert bench.plan() == []
        assert {tokens.limit.name for tokens in bench.limits._requests.wanted} == {"gpu"}

    asyncio.run(main())


class Shut(Gate):
    """Lets nothing through."""

    def allowances(self, lane: Lane) -> list[Allowance]:
        return [Allowance(lane.kind, 0)]


def test_a_limit_is_not_asked_while_a_gate_before_it_is_shut() -> None:
    """Prevents: tokens that are kept for jobs which a breaker lets nobody start."""

    async def main() -> None:
        bench = Bench(concurrency=1)
        shut = Gates([Shut(), bench.limits])
        assert [each.left for each in shut.allowances(_lane("x"))] == [0]
        assert not bench.limits._requests.wanted
        assert [each.left for each in bench.gates.allowances(_lane("x"))] == [0]
        assert bench.limits._requests.wanted

    asyncio.run(main())


def test_a_job_behind_many_that_lack_a_token_starts_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Prevents: a plan that stops at the many, and a worker that rests without a look behind."""
    monkeypatch.setattr("windlass.core.claims.plan.MOST_SPENT", 2)
    app, keys = Windlass("memory://"), range(300)

    @app.job(key="account", rate="1/d")
    async def book(account: str) -> None:
        assert account

    @app.job
    async def other() -> None: ...

    async def main() -> None:
        async with serving(app, poll_interval="30s"):
            for handle in await app.aenqueue_many(book.draft(str(key)) for key in keys):
                await in_state(handle, State.COMPLETED, within=30)
            await app.aenqueue_many(book.draft(str(key)) for key in keys)
            await in_state(await other.aenqueue(), State.COMPLETED)

    asyncio.run(main())
