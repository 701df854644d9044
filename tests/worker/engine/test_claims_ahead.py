"""Jobs whose handlers end at once are claimed by the pace of the loop, not by the free slots."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.app_on_store import PROMPT, QUICK, Bed, Through, serving, until
from windlass import State, Windlass
from windlass.core.claims.lanes import Claim
from windlass.core.claims.room import SLOTS as SLOTS_BUDGET
from windlass.core.jobs.queries import JobFilter
from windlass.worker.engine import start_pace
from windlass.worker.engine.start_pace import QuickKinds

SLOTS = 8
JOBS = 900
LEARNED = 200
"""Runs after which a kind that never waited is claimed ahead."""
pytestmark = pytest.mark.stores("memory", "sqlite", "postgres", "redis")


class Claims(Through):
    """Records how many jobs each claim has brought."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.sizes: list[int] = []

    async def claim(self, *given: Any, **named: Any) -> Any:
        jobs = await self.inner.claim(*given, **named)
        self.sizes.append(len(jobs))
        return jobs


async def states_of(app: Windlass) -> dict[State, int]:
    found: dict[State, int] = {}
    for job in (await app.store.find(JobFilter(), limit=2 * JOBS)).jobs:
        found[job.state] = found.get(job.state, 0) + 1
    return found


async def written(app: Windlass, expected: dict[State, int]) -> None:
    """Wait until the last outcomes are in the store."""
    async with asyncio.timeout(PROMPT):
        while await states_of(app) != expected:  # noqa: ASYNC110 - only the store knows.
            await asyncio.sleep(0.01)


def test_jobs_of_a_quick_kind_are_claimed_beyond_the_free_slots(bed: Bed) -> None:
    store = Claims(bed.store())
    app = bed.app(store=store)

    @app.job
    async def noop() -> None: ...

    async def main() -> None:
        await app.aenqueue_many(noop.draft() for _ in range(JOBS))
        await asyncio.wait_for(app.arun_worker(burst=True, concurrency=SLOTS, **QUICK), PROMPT)
        assert await states_of(app) == {State.COMPLETED: JOBS}
        await app.aclose()

    asyncio.run(main())
    assert max(store.sizes) > SLOTS


@pytest.mark.parametrize("settings", [{"limit": "gate"}, {"ordered": True, "key": "text"}])
def test_jobs_that_a_policy_bounds_are_never_claimed_beyond_the_free_slots(
    bed: Bed, settings: dict[str, Any]
) -> None:
    store = Claims(bed.store())
    app = bed.app(store=store)
    app.limit("gate", concurrency=1_000)

    @app.job(**settings)  # type: ignore[untyped-decorator]
    async def noop(text: str) -> None:
        del text

    async def main() -> None:
        await app.aenqueue_many(noop.draft("same") for _ in range(300))
        await asyncio.wait_for(app.arun_worker(burst=True, concurrency=SLOTS, **QUICK), PROMPT)
        await app.aclose()

    asyncio.run(main())
    assert max(store.sizes) <= SLOTS


class Bounded(Claims):
    """A store that wants small claims, and notes how many are under way."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.capabilities = replace(inner.capabilities, claim_size=7, claims_under_way=3)
        self.asked: list[int] = []
        self.under_way = self.most_under_way = 0

    async def claim(self, claim: Claim, **named: Any) -> Any:
        self.asked.append(claim.budgets[SLOTS_BUDGET])
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            for _ in range(20):  # A store in this process would answer before the next claim.
                await asyncio.sleep(0)
            return await super().claim(claim, **named)
        finally:
            self.under_way -= 1


def test_a_worker_claims_as_much_at_once_as_its_store_wants(bed: Bed) -> None:
    store = Bounded(bed.store())
    app = bed.app(store=store)

    @app.job
    async def noop() -> None: ...

    async def main() -> None:
        await app.aenqueue_many(noop.draft() for _ in range(JOBS))
        await asyncio.wait_for(app.arun_worker(burst=True, **QUICK), PROMPT)
        assert await states_of(app) == {State.COMPLETED: JOBS}
        await app.aclose()

    asyncio.run(main())
    assert max(store.asked) == 7
    assert store.most_under_way == 3


def test_claims_that_were_sent_ahead_and_found_nothing_delay_no_later_one(bed: Bed) -> None:
    """Prevents: a worker that pauses for each of them as if others had been faster, and hears of no
    new job meanwhile.
    """
    app = bed.app(store=Bounded(bed.store()))

    @app.job
    async def noop() -> None: ...

    async def main() -> None:
        await app.aenqueue_many(noop.draft() for _ in range(JOBS))
        async with serving(app) as worker:
            await until(lambda: worker.processed == JOBS)
            claimer = worker._parts.engine.claimer
            await until(lambda: not claimer.is_claiming)
            assert claimer._empty_claims <= 1
        await app.aclose()

    asyncio.run(main())


class Turncoat:
    """A handler that is quick at first, and then waits until the test lets it go on."""

    def __init__(self, app: Windlass) -> None:
        self.go = asyncio.Event()
        self.waits = False
        self.ended = self.running = self.most = 0

        @app.job(name="turncoat")
        async def turncoat() -> None:
            self.running += 1
            self.most = max(self.most, self.running)
            if self.waits:
                await self.go.wait()
            self.running -= 1
            self.ended += 1
            self.waits = self.waits or self.ended >= LEARNED

        self.draft = turncoat.draft


def test_no_more_handlers_run_at_once_than_there_are_slots(bed: Bed) -> None:
    app = bed.app()
    handler = Turncoat(app)

    async def main() -> None:
        await app.aenqueue_many(handler.draft() for _ in range(JOBS))
        worker = asyncio.create_task(app.arun_worker(burst=True, concurrency=SLOTS, **QUICK))
        await until(lambda: handler.running == SLOTS)
        handler.go.set()
        await asyncio.wait_for(worker, PROMPT)
        assert await states_of(app) == {State.COMPLETED: JOBS}
        await app.aclose()

    asyncio.run(main())
    assert handler.most == SLOTS
    assert handler.ended == JOBS


def test_an_idle_worker_runs_what_a_slow_one_had_claimed_ahead(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents a worker that claims ahead from keeping jobs whose slots do not become free."""
    monkeypatch.setattr(start_pace, "MAX_START_SECONDS", 1.0)
    store = bed.store()
    slow_app, idle_app = bed.app(store=store), bed.app(store=store)
    slow, idle = Turncoat(slow_app), Turncoat(idle_app)

    async def main() -> None:
        await slow_app.aenqueue_many(slow.draft() for _ in range(JOBS))
        workers = [asyncio.create_task(slow_app.arun_worker(concurrency=SLOTS, **QUICK))]
        await until(lambda: slow.running == SLOTS)
        idle.waits = False
        idle.ended = -JOBS  # It never begins to wait.
        workers.append(asyncio.create_task(idle_app.arun_worker(concurrency=SLOTS, **QUICK)))
        await until(lambda: slow.ended + idle.ended + JOBS == JOBS - SLOTS)
        assert slow.running == SLOTS, "it still keeps the jobs that it has begun, and no others"
        await written(slow_app, {State.COMPLETED: JOBS - SLOTS, State.RUNNING: SLOTS})
        slow.go.set()
        await until(lambda: not slow.running)
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)
        jobs = (await store.find(JobFilter(), limit=2 * JOBS)).jobs
        assert not any(job.failures or job.history for job in jobs), "none of them was charged"
        await slow_app.aclose()

    asyncio.run(main())
    assert slow.most == SLOTS


def test_a_kind_is_quick_after_a_hundred_runs_and_slow_after_one() -> None:
    kinds = QuickKinds(["noop", "other"])
    for _ in range(100):
        assert "noop" not in kinds.known
        kinds.ended_at_once("noop")
    assert kinds.known == {"noop"}
    kinds.waited("noop")
    assert not kinds.known
    for _ in range(99):
        kinds.ended_at_once("noop")
    assert not kinds.known
    kinds.ended_at_once("noop")
    kinds.forget()
    assert not kinds.known


def test_kinds_that_a_policy_bounds_are_never_quick() -> None:
    kinds = QuickKinds(["noop"])
    for _ in range(200):
        kinds.ended_at_once("limited")
    assert not kinds.known
