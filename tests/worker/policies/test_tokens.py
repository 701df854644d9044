"""Tokens move between workers: from those that are idle, lost or dead to those that want them."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from tests.support.app_on_store import Bed, in_state, serving, until
from tests.worker.policies.limit_meter import Meter, done
from windlass import State, Windlass
from windlass.core.changes import Changes
from windlass.core.policies.limit import RECORD, Limit
from windlass.core.workers import WorkerInfo

pytestmark = pytest.mark.stores("postgres")


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
