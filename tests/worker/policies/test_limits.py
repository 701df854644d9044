"""Limits of rate and concurrency over several workers, on every store."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.app_on_store import (
    QUICK,
    Bed,
    Through,
    in_state,
    log_lines,
    on_embedded_stores,
    serving,
    until,
)
from windlass import ConfigError, Retry, Snooze, State, StoreUnavailable, Windlass
from windlass.core.changes import Changes
from windlass.core.claims.lanes import Ask, Claim
from windlass.core.jobs.job import Job, Lane
from windlass.core.jobs.settle import Transition
from windlass.core.policies.limit import OVERRIDE, RECORD, Limit
from windlass.core.workers import WorkerInfo
from windlass.store import Store
from windlass.worker.policies.limit_gate import LimitGate

pytestmark = pytest.mark.stores("postgres")


class Meter:
    """Counts what runs at the same time, and when it started."""

    def __init__(self) -> None:
        self.now, self.most = Counter[str](), Counter[str]()
        self.starts: list[float] = []

    async def run(
        self, key: str = "", seconds: float = 0.01, amount: int = 1, together: int = 0
    ) -> None:
        """Run for a while, and until this many once ran at the same time."""
        self.starts.append(time.monotonic())
        self.now[key] += amount
        self.most[key] = max(self.most[key], self.now[key])
        await asyncio.sleep(seconds)
        if self.most[key] < together:
            await until(lambda: self.most[key] >= together)
        self.now[key] -= amount

    def most_within(self, period: float) -> int:
        starts = sorted(self.starts)
        return max(sum(at <= each < at + period for each in starts) for at in starts)


async def done(app: Windlass, count: int, *, queue: str = "default", within: float = 20) -> None:
    async def is_done() -> bool:
        counts = await app.store.counts()
        return (
            sum(e.count for e in counts if e.state is State.COMPLETED and e.queue == queue) >= count
        )

    await until(is_done, within=within)


async def three(stack: AsyncExitStack, app: Windlass, **flags: Any) -> None:
    for _ in range(3):
        await stack.enter_async_context(serving(app, **flags))


async def is_clean(store: Store) -> bool:
    """Say whether nobody holds a token any more."""
    records = await store.records(RECORD)
    return not [part for each in records.values() for part in each.values() if "holds" in part]


# -- concurrency -----------------------------------------------------------------------------------


def test_never_more_jobs_of_a_kind_at_a_time_than_its_limit_over_all_workers(bed: Bed) -> None:
    app, meter = bed.app(), Meter()

    @app.job(concurrency=3)
    async def work() -> None:
        await meter.run()

    async def main() -> None:
        await app.aenqueue_many(work.draft() for _ in range(60))
        async with AsyncExitStack() as stack:
            await three(stack, app, concurrency=10)
            await done(app, 60)
        assert await is_clean(app.store)

    asyncio.run(main())
    assert meter.most[""] == 3


def test_a_limit_goes_by_the_key(bed: Bed) -> None:
    app, meter = bed.app(), Meter()

    @app.job(key="tenant", concurrency=2)
    async def work(tenant: str) -> None:
        await meter.run(tenant)

    async def main() -> None:
        tenants = [f"t{number}" for number in range(5)]
        await app.aenqueue_many(work.draft(tenant) for _ in range(12) for tenant in tenants)
        async with AsyncExitStack() as stack:
            await three(stack, app, concurrency=20)
            await done(app, 60)
        assert await is_clean(app.store)
        assert meter.most == dict.fromkeys(tenants, 2)

    asyncio.run(main())


def test_a_limit_can_go_by_the_kind_although_there_is_a_key(bed: Bed) -> None:
    app, meter = bed.app(), Meter()

    @app.job(key="tenant", concurrency=2, per="kind")
    async def work(tenant: str) -> None:
        assert tenant
        await meter.run()

    async def main() -> None:
        await app.aenqueue_many(work.draft(f"t{number % 5}") for number in range(30))
        async with serving(app, concurrency=20):
            await done(app, 30)

    asyncio.run(main())
    assert meter.most[""] == 2


def test_kinds_share_a_resource_by_the_amount_that_each_uses(bed: Bed) -> None:
    app, meter = bed.app(), Meter()
    app.limit("gpu", concurrency=4)

    @app.job(limit="gpu", units=3)
    async def train() -> None:
        await meter.run("gpu", amount=3)
        meter.most["train"] += 1

    @app.job(limit="gpu")
    async def infer() -> None:
        await meter.run("gpu")

    async def main() -> None:
        await app.aenqueue_many(kind.draft() for _ in range(15) for kind in (train, infer))
        async with AsyncExitStack() as stack:
            await three(stack, app, concurrency=10)
            await done(app, 30, within=40)

    asyncio.run(main())
    assert 3 <= meter.most["gpu"] <= 4
    assert meter.most["train"] == 15


def test_jobs_that_use_much_of_a_resource_are_not_starved_by_those_that_use_little(
    bed: Bed,
) -> None:
    app, meter = bed.app(), Meter()
    app.limit("gpu", concurrency=4)
    over = False

    @app.job(limit="gpu", units=4)
    async def train() -> None:
        await meter.run("gpu", amount=4)

    @app.job(limit="gpu")
    async def infer() -> None:
        await meter.run("gpu", 0.005 + 0.01 * (len(meter.starts) % 3))
        if not over:
            await infer.aenqueue()

    async def main() -> None:
        nonlocal over
        await app.aenqueue_many(infer.draft() for _ in range(20))
        async with serving(app, concurrency=10), serving(app, concurrency=10):
            await until(lambda: len(meter.starts) > 10)
            handle = await train.aenqueue()
            await in_state(handle, State.COMPLETED)
            over = True

    asyncio.run(main())
    assert meter.most["gpu"] == 4


def test_a_queue_has_a_limit_for_all_kinds_in_it(bed: Bed) -> None:
    app, meter = bed.app(), Meter()
    app.limit(queue="mail", concurrency=2)

    together = {"mail": 2, "rest": 3}

    @app.job
    async def one(queue: str) -> None:
        await meter.run(queue, together=together[queue])

    @app.job(concurrency=1)
    async def other(queue: str) -> None:
        await meter.run(queue, together=together[queue])
        await meter.run("other", 0)

    async def main() -> None:
        await app.aenqueue_many(
            kind.using(queue=queue).draft(queue)
            for _ in range(10)
            for kind in (one, other)
            for queue in ("mail", "rest")
        )
        async with serving(app, concurrency=20):
            await done(app, 20, queue="mail")
            await done(app, 20, queue="rest")

    asyncio.run(main())
    assert meter.most["mail"] == 2
    assert meter.most["rest"] > 2
    assert meter.most["other"] == 1


def test_tokens_of_an_idle_worker_go_to_a_worker_that_wants_them(bed: Bed) -> None:
    """The first worker has all tokens, and loses interest; the second has other slots to fill."""
    first, second = bed.app(), None
    store = first.store
    second = bed.app(store=store)
    ran = Counter[str]()

    def define(app: Windlass, who: str) -> Any:
        @app.job(name="work", concurrency=2)
        async def work() -> None:
            ran[who] += 1

        return work

    work, other = define(first, "first"), define(second, "second")

    async def main() -> None:
        async with serving(first, queues="a"), serving(second, queues="b"):
            await first.aenqueue_many(work.using(queue="a").draft() for _ in range(5))
            await until(lambda: ran["first"] == 5)
            await second.aenqueue_many(other.using(queue="b").draft() for _ in range(5))
            await until(lambda: ran["second"] == 5, within=60)

    asyncio.run(main())


def test_slots_of_a_lost_worker_come_back_with_its_lease(bed: Bed) -> None:
    app, meter = bed.app(), Meter()

    @app.job(concurrency=2)
    async def work() -> None:
        await meter.run(seconds=0.05)

    async def main() -> None:
        name = f"{RECORD}kind:work"
        lost = {"concurrency": {"holds": {"lapsed": {"": 1}, "dead": {"": 1}}}}
        lapsed = WorkerInfo(
            id="lapsed", name="w", host="h", pid=1, release="", lease=timedelta(0), slots=1
        )
        await app.store.open()
        await app.store.register(lapsed)
        await app.store.apply([name], lambda _, __: Changes(answer=None, records={name: lost}))
        await app.aenqueue_many(work.draft() for _ in range(5))
        async with serving(app, lease="1h"):
            await done(app, 5)
            held = (await app.store.records(name))[name]["concurrency"]["holds"]
            assert held["lapsed"] == {"": 1}, "it could renew its lease"
            assert "dead" not in held
            assert meter.most[""] == 1
            await app.store.retire("lapsed")
            await app.aenqueue_many(work.draft() for _ in range(100))
            await until(lambda: meter.most[""] == 2)

    asyncio.run(main())


def test_a_backlog_of_limited_jobs_does_not_stop_the_others(bed: Bed) -> None:
    app = bed.app()
    go = asyncio.Event()

    @app.job(concurrency=1)
    async def limited() -> None:
        await go.wait()

    @app.job(rate="1/h")
    async def seldom() -> None: ...

    @app.job(key="key", concurrency=1)
    async def keyed(key: str) -> None:
        assert key
        await go.wait()

    @app.job
    async def free() -> int:
        return 1

    async def main() -> None:
        await app.aenqueue_many(
            [limited.draft() for _ in range(200)]
            + [seldom.draft() for _ in range(200)]
            + [keyed.draft(f"k{number % 3}") for number in range(200)]
        )
        async with serving(app, concurrency=10):
            handles = await app.aenqueue_many(free.draft() for _ in range(100))
            for handle in handles:
                assert await handle.aresult("60s") == 1
            go.set()

    asyncio.run(main())


# -- rates -----------------------------------------------------------------------------------------


def test_never_more_starts_in_any_window_than_the_rate_over_all_workers(bed: Bed) -> None:
    app, meter = bed.app(), Meter()

    @app.job(rate="20/s")
    async def work() -> None:
        await meter.run(seconds=0.002)

    async def main() -> None:
        await app.aenqueue_many(work.draft() for _ in range(70))
        async with AsyncExitStack() as stack:
            await three(stack, app, concurrency=10)
            await done(app, 70)

    asyncio.run(main())
    assert meter.most_within(1.0) <= 20
    assert max(meter.starts) - min(meter.starts) < 8, "nor much fewer than it allows"


def test_a_burst_bounds_how_many_start_at_once(bed: Bed) -> None:
    app, meter = bed.app(), Meter()

    @app.job(rate="50/s", burst=5)
    async def work() -> None:
        await meter.run(seconds=0.2)

    async def main() -> None:
        await app.aenqueue_many(work.draft() for _ in range(40))
        async with serving(app, concurrency=50):
            await done(app, 40)

    asyncio.run(main())
    assert meter.most_within(0.1) <= 5
    assert max(meter.starts) - min(meter.starts) < 4


def test_a_rate_goes_by_the_key(bed: Bed) -> None:
    app, meters = bed.app(), {"a": Meter(), "b": Meter()}

    @app.job(key=lambda url: url.partition("/")[0], rate="5/s")
    async def crawl(url: str) -> None:
        await meters[url[0]].run()

    async def main() -> None:
        await app.aenqueue_many(crawl.draft(f"{host}/{n}") for n in range(10) for host in "ab")
        async with serving(app):
            await done(app, 20)

    asyncio.run(main())
    for meter in meters.values():
        assert meter.most_within(1.0) == 5
        assert len(meter.starts) == 10


def test_a_burst_of_work_waits_for_its_tokens(bed: Bed) -> None:
    """A worker that ends when all is done is not done while jobs wait for their limit."""
    app, meter = bed.app(), Meter()

    @app.job(rate="10/s")
    async def work() -> None:
        await meter.run()

    async def main() -> None:
        await app.aenqueue_many(work.draft() for _ in range(15))
        await asyncio.wait_for(app.arun_worker(burst=True, **QUICK), 60)

    asyncio.run(main())
    assert len(meter.starts) == 15


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

    async def claim(self, claim: Claim, **told: Any) -> list[Job]:
        jobs: list[Job] = await self.inner.claim(claim, **told)
        if jobs and not self.lost:
            self.lost = len(jobs)
            raise StoreUnavailable("the answer is lost")
        return jobs


def test_a_job_whose_claim_was_lost_is_not_overtaken(bed: Bed) -> None:
    store = Forgetful(bed.store())
    app = bed.app(store=store)
    ran: list[int] = []

    @app.job(key="account", ordered=True)
    async def book(account: str, number: int) -> None:
        assert account
        ran.append(number)

    async def main() -> None:
        await app.aenqueue_many(book.draft("x", number) for number in range(3))
        async with serving(app, lease="3s"):
            await done(app, 3)

    asyncio.run(main())
    assert store.lost == 1
    assert ran == [0, 1, 2]


# -- changes while workers run ---------------------------------------------------------------------


def test_a_limit_below_what_a_job_uses_is_refused() -> None:
    app = Windlass("memory://")
    app.limit("gpu", concurrency=8)

    @app.job(limit="gpu", units=2)
    async def train() -> None: ...

    async def main() -> None:
        with pytest.raises(ValueError, match="it could never start"):
            await app.control.aset_limit("gpu", concurrency=1)
        await app.control.aset_limit("gpu", concurrency=2)

    asyncio.run(main())


def test_a_limit_is_changed_without_a_restart(bed: Bed, caplog: pytest.LogCaptureFixture) -> None:
    app, meter = bed.app(), Meter()
    caplog.set_level("INFO")

    @app.job(concurrency=1)
    async def work() -> None:
        await meter.run(seconds=0.02)

    async def main() -> None:
        await app.aenqueue_many(work.draft() for _ in range(900))
        async with serving(app, concurrency=50):
            await done(app, 3)
            assert meter.most[""] == 1
            await app.control.aset_limit("kind:work", concurrency=10)
            await until(lambda: meter.most[""] == 10)
            (state,) = await app.control.alimits()
            assert (state.name, state.concurrency, state.changed) == ("kind:work", 10, True)
            assert state.held == 10
            await app.control.aset_limit("kind:work", concurrency=2)
            await until(lambda: len(log_lines(caplog, "limit.changed")) == 2)
            await app.aenqueue_many(work.draft() for _ in range(100))
            for _ in range(2):  # Once for the claims that were under way.
                await until(lambda: meter.now[""] <= 2)
                meter.most.clear()
                begun = len(meter.starts)
                await until(lambda: len(meter.starts) > begun + 10)  # noqa: B023
            assert meter.most[""] == 2
            assert await app.control.areset_limit("kind:work")
            assert not await app.control.areset_limit("kind:work")
            await app.control.aset_limit("kind:work", concurrency=50)
            await done(app, 1000)
        assert (await app.control.alimits())[0].held == 0

    asyncio.run(main())


def test_an_unknown_limit_cannot_be_changed(bed: Bed) -> None:
    app = bed.app()

    @app.job(concurrency=1)
    async def work() -> None: ...

    @app.job(key="account", ordered=True)
    async def book(account: str) -> None:
        assert account

    async def main() -> None:
        cases: list[tuple[str, dict[str, Any], str]] = [
            ("kind:wrok", {"rate": "1/s"}, "known limits: kind:book, kind:work"),
            ("kind:work", {}, "a change of a limit needs"),
            ("kind:work", {"rate": "-1/s"}, "a rate must be"),
            ("kind:work", {"burst": 2}, "has no rate"),
            ("kind:book", {"concurrency": 2}, "is ordered"),
        ]
        for name, change, said in cases:
            with pytest.raises(ValueError, match=said):
                await app.control.aset_limit(name, **change)
        assert await app.store.records(OVERRIDE) == {}

    asyncio.run(main())


# -- what goes wrong -------------------------------------------------------------------------------


def test_a_resource_that_nobody_defines_is_found_when_the_worker_starts(bed: Bed) -> None:
    app = bed.app()

    @app.job(limit="gpu")
    async def work() -> None: ...

    with pytest.raises(ConfigError, match=r"kind 'work' uses the limit 'gpu'.*app.limit"):
        asyncio.run(app.arun_worker())
    app.limit("gpu", concurrency=8)

    @app.job(limit="gpu", units=9)
    async def greedy() -> None: ...

    with pytest.raises(ConfigError, match=r"'greedy' uses 9 units of 'gpu', which has only 8"):
        asyncio.run(app.arun_worker())
    with pytest.raises(ConfigError, match="defined twice"):
        app.limit("gpu", concurrency=9)


def test_a_worker_that_lost_its_lease_begins_anew_with_its_tokens(bed: Bed) -> None:
    app, meter = bed.app(), Meter()

    @app.job(concurrency=2)
    async def work() -> None:
        await meter.run()

    async def main() -> None:
        async with serving(app, lease="1s") as worker:
            await app.aenqueue_many(work.draft() for _ in range(5))
            await done(app, 5)
            before = worker.id
            await app.store.retire(before)
            await until(lambda: worker.id not in ("", before))
            await app.aenqueue_many(work.draft() for _ in range(5))
            await done(app, 10)

    asyncio.run(main())
    assert meter.most[""] <= 2


def test_workers_that_each_hold_part_of_the_tokens_both_need_do_not_deadlock(bed: Bed) -> None:
    app, meter = bed.app(), Meter()
    app.limit("gpu", concurrency=1)

    @app.job(concurrency=1, limit="gpu")
    async def train() -> None:
        await meter.run("gpu", 0.005)

    @app.job(limit="gpu")
    async def infer() -> None:
        await meter.run("gpu", 0.005)

    async def main() -> None:
        async with serving(app, concurrency=5), serving(app, concurrency=5):
            for _ in range(5):
                handles = [await train.aenqueue(), await infer.aenqueue()]
                for handle in handles:
                    await in_state(handle, State.COMPLETED)

    asyncio.run(main())
    assert meter.most["gpu"] == 1


def test_the_holder_of_the_only_token_gives_it_to_others(bed: Bed) -> None:
    """Prevents: a worker with a backlog keeps what it has for as long as that lasts."""
    app, meter = bed.app(), Meter()
    app.limit("gpu", concurrency=1)
    over = False

    @app.job(limit="gpu", queue="mine")
    async def mine() -> None:
        await meter.run("gpu", 0.005)
        if not over:
            await mine.aenqueue()

    @app.job(limit="gpu", queue="yours")
    async def yours() -> None:
        await meter.run("gpu", 0.005)

    async def main() -> None:
        nonlocal over
        await app.aenqueue_many(mine.draft() for _ in range(5))
        async with serving(app, queues="mine"), serving(app, queues="yours"):
            await until(lambda: len(meter.starts) > 10)
            await in_state(await yours.aenqueue(), State.COMPLETED)
            over = True

    asyncio.run(main())
    assert meter.most["gpu"] == 1


def test_tokens_of_a_dead_worker_are_free_for_holders_of_other_tokens(bed: Bed) -> None:
    app = bed.app()
    over = False

    @app.job(concurrency=1)
    async def scarce() -> None: ...

    @app.job(concurrency=10)
    async def plenty() -> None:
        await asyncio.sleep(0.01)
        if not over:
            await plenty.aenqueue()

    async def main() -> None:
        nonlocal over
        held = {"concurrency": {"holds": {"ghost": {"": 1}}}}
        name = Limit(name="kind:scarce", concurrency=1).record("")
        await app.store.open()
        await app.store.apply([name], lambda _, __: Changes(answer=None, records={name: held}))
        await app.aenqueue_many(plenty.draft() for _ in range(3))
        async with serving(app):
            await in_state(await scarce.aenqueue(), State.COMPLETED)
            over = True

    asyncio.run(main())
