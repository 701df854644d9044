"""Limits of rate and concurrency over several workers, on every store."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.support.app_on_store import Bed, in_state, log_lines, serving, until
from tests.worker.policies.limit_meter import Meter, done, three
from windlass import ConfigError, State, Windlass
from windlass.core.policies.limit import OVERRIDE, RECORD
from windlass.store import Store

pytestmark = pytest.mark.stores("postgres")


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
