"""Jobs of an ordered key run one after the other, whatever fails."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from tests.support.app_on_store import Bed, Through, in_state, on_embedded_stores, serving, until
from tests.worker.policies.limit_meter import done, three
from windlass import Retry, Snooze, State, StoreUnavailable
from windlass.core.changes import Changes
from windlass.core.claims.lanes import Ask, Claim
from windlass.core.jobs.job import Job, Lane
from windlass.core.jobs.settle import Transition
from windlass.core.policies.limit import Limit
from windlass.core.workers import WorkerInfo
from windlass.store import Store
from windlass.worker.policies.limit_gate import LimitGate

pytestmark = pytest.mark.stores("postgres")


# -- order -----------------------------------------------------------------------------------------


def test_jobs_of_a_key_run_in_their_order_though_some_fail_and_many_workers_serve(
    bed: Bed,
) -> None:
    app = bed.app()
    runs: dict[str, list[tuple[int, bool]]] = {}
    now: Counter[str] = Counter()

    @app.job(
        key="account", ordered=True, retry=Retry(max_retries=5, initial="50ms", max_delay="50ms")
    )
    async def book(account: str, number: int) -> Snooze | None:
        now[account] += 1
        assert now[account] == 1, "one at a time"
        tries = [each for each in runs.setdefault(account, []) if each[0] == number]
        await asyncio.sleep(0.005)
        fails = number % 3 == 1 and len(tries) < 2
        runs[account].append((number, not fails))
        now[account] -= 1
        if fails and number == 4:
            return Snooze("50ms")
        if fails:
            raise ValueError("not yet")
        return None

    async def main() -> None:
        accounts = ["x", "y", "z"]
        await app.aenqueue_many(book.draft(account, n) for n in range(8) for account in accounts)
        async with AsyncExitStack() as stack:
            await three(stack, app, concurrency=5)
            await done(app, 24, within=40)
        expected = []
        for number in range(8):
            expected += [(number, False)] * (2 * (number % 3 == 1)) + [(number, True)]
        assert runs == dict.fromkeys(accounts, expected)

    asyncio.run(main())


@on_embedded_stores
def test_a_key_is_held_until_the_instant_that_was_named_however_long_the_run_took(
    bed: Bed,
) -> None:
    """Prevents: a key is held too long by as much as the run took that named the instant."""
    app = bed.app()
    began: list[float] = []
    named: list[float] = []

    @app.job(key="account", ordered=True)
    async def book(account: str) -> Snooze | None:
        assert account
        began.append(time.time())
        if len(began) > 1:
            return None
        await asyncio.sleep(0.6)
        named.append(time.time() + 0.1)
        return Snooze(datetime.fromtimestamp(named[0], UTC))

    async def main() -> None:
        handle = await book.aenqueue("x")
        async with serving(app):
            await in_state(handle, State.COMPLETED)

    asyncio.run(main())
    late = began[1] - named[0]
    assert -0.05 <= late < 0.5, late


@on_embedded_stores
def test_a_key_that_was_held_back_is_free_in_time_though_others_wait_for_it(bed: Bed) -> None:
    """Prevents: a lane that was known to lack a token is not looked at when it comes earlier."""
    app = bed.app()
    began: list[float] = []

    @app.job(key="account", ordered=True)
    async def book(account: str) -> Snooze | None:
        assert account
        began.append(time.monotonic())
        # The claimer looks in vain just before the end, and would look again half a second later.
        await look.aenqueue()
        await asyncio.sleep(0.02)
        return Snooze("50ms") if len(began) <= 8 else None

    @app.job
    async def look() -> None:
        pass

    async def main() -> None:
        handles = await app.aenqueue_many(book.draft("x") for _ in range(2))
        async with serving(app):
            for handle in handles:
                await in_state(handle, State.COMPLETED)

    asyncio.run(main())
    gaps = sorted(second - first for first, second in itertools.pairwise(began))
    assert gaps[len(gaps) // 2] < 0.3, gaps


def test_an_ordered_job_that_is_dead_lets_the_next_one_pass(bed: Bed) -> None:
    app = bed.app()
    ran: list[int] = []

    @app.job(key="account", ordered=True, retry=Retry(max_retries=1, initial="1ms"))
    async def book(account: str, number: int) -> None:
        assert account
        ran.append(number)
        if number == 0:
            raise RuntimeError("never")

    async def main() -> None:
        first, second = await app.aenqueue_many(book.draft("x", n) for n in range(2))
        async with serving(app):
            await in_state(second, State.COMPLETED)
            assert await first.astate() is State.DEAD

    asyncio.run(main())
    assert ran == [0, 0, 1]


def test_a_job_that_a_dead_worker_had_is_not_overtaken_before_it_is_back(bed: Bed) -> None:
    """Prevents: the token of a dead worker is free while its job still runs by the account."""
    app = bed.app()
    ran: list[int] = []

    @app.job(key="account", ordered=True)
    async def book(account: str, number: int) -> None:
        assert account
        ran.append(number)

    async def main() -> None:
        dead = WorkerInfo(
            id="dead", name="w", host="h", pid=1, release="", lease=timedelta(hours=1), slots=1
        )
        await app.store.open()
        await app.store.register(dead)
        handles = await app.aenqueue_many(book.draft("x", number) for number in range(3))
        ask = Ask(lane=Lane("default", "book", 0, "x"), count=1)
        (job,) = await app.store.claim(Claim(asks=(ask,)), worker="dead", token=7)
        assert job.id == handles[0].id
        name = Limit(name="kind:book", keyed=True).record("x")
        lost = {"concurrency": {"holds": {"dead": {"x": 1}}}}
        await app.store.apply([name], lambda _, __: Changes(answer=None, records={name: lost}))
        await app.store.retire("dead")
        # One with so long a lease may not rescue yet, so that the test decides when that happens.
        async with serving(app, lease="1h") as worker:
            (limits,) = worker._parts.gates
            assert isinstance(limits, LimitGate)
            await until(lambda: limits._requests.busy.get("kind:book") == frozenset({"x"}))
            applied = limits._requests.applied_at
            await until(lambda: limits._requests.applied_at > applied)
            assert ran == []
            back = Transition(id=job.id, token=7, state=State.PENDING)
            assert await app.store.settle([back]) == [True]
            await done(app, 3)
        assert ran == [0, 1, 2]

    asyncio.run(main())


class Forgetful(Through):
    """A store whose first claim is made, and whose answer to it gets lost."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.lost = 0
        self.claimed: list[Job] = []

    async def claim(self, claim: Claim, **told: Any) -> list[Job]:
        jobs: list[Job] = await self.inner.claim(claim, **told)
        if jobs and not self.lost:
            self.lost = len(jobs)
            raise StoreUnavailable("the answer is lost")
        return jobs


class Blind(Forgetful):
    """One in which the worker cannot look for the lost job until two leases later."""

    def __init__(self, inner: Store, lease: float) -> None:
        super().__init__(inner)
        self._lease = lease
        self._until = 0.0

    async def claim(self, claim: Claim, **told: Any) -> list[Job]:
        try:
            return await super().claim(claim, **told)
        except StoreUnavailable:
            self._until = time.monotonic() + 2 * self._lease
            raise

    async def held(self, worker: str) -> list[Job]:
        if time.monotonic() < self._until:
            raise StoreUnavailable("the network is cut")
        found: list[Job] = await self.inner.held(worker)
        return found


class Busy(Forgetful):
    """One whose worker always holds a job that it has just settled, as a busy one does."""

    async def held(self, worker: str) -> list[Job]:
        found: list[Job] = await self.inner.held(worker)
        return [*found, *(replace(job, id=uuid4(), token=1) for job in self.claimed[:1])]

    async def claim(self, claim: Claim, **told: Any) -> list[Job]:
        jobs = await super().claim(claim, **told)
        self.claimed = [*self.claimed, *jobs]
        return jobs


def run_booked(bed: Bed, store: Forgetful, lease: str) -> list[int]:
    """Run three jobs of an ordered key, of which the first is lost with its claim, and one of
    another kind after that; return the order of the three.
    """
    app = bed.app(store=store)
    ran: list[int] = []

    @app.job(key="account", ordered=True)
    async def book(account: str, number: int) -> None:
        assert account
        ran.append(number)

    @app.job
    async def note() -> None: ...

    async def main() -> None:
        await app.aenqueue_many(book.draft("x", number) for number in range(3))
        async with serving(app, lease=lease):
            await until(lambda: store.lost == 1)
            await note.aenqueue()
            await done(app, 4)

    asyncio.run(main())
    return ran


def test_a_job_whose_claim_was_lost_is_not_overtaken(bed: Bed) -> None:
    assert run_booked(bed, Forgetful(bed.store()), "3s") == [0, 1, 2]


def test_a_key_whose_claim_was_lost_goes_on_in_a_busy_worker(bed: Bed) -> None:
    """Prevents a key that waits until its worker holds no job that is on its way."""
    assert run_booked(bed, Busy(bed.store()), "2s") == [0, 1, 2]


def test_a_job_whose_claim_was_lost_is_not_overtaken_however_long_it_is_not_found(
    bed: Bed,
) -> None:
    """Prevents that the next job of the key starts after a lease, while the lost one is held."""
    assert run_booked(bed, Blind(bed.store(), lease=2.0), "2s") == [0, 1, 2]
