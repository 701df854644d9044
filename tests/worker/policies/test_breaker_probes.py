"""While a breaker is half-open, few probes run, and their ends decide whether it closes."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests.support.app_on_store import Bed, in_state, serving, until
from tests.worker.policies.breaker_gateway import Gateway, becomes, status_of
from windlass import Backoff, Breaker, Cancel, Retry, State, Windlass
from windlass.core.changes import Changes
from windlass.core.policies.breaker_record import BreakerState, BreakerStatus, record_of
from windlass.core.workers import WorkerInfo
from windlass.testing import travel

pytestmark = pytest.mark.stores("postgres")
AT_ONCE = Retry(max_retries=1000, backoff=Backoff(base=timedelta(0)))


async def put(app: Windlass, status: BreakerStatus) -> None:
    """Write a record, as other workers would have."""
    name = f"breaker:{status.name}"
    await app.store.apply(
        [name], lambda _, __: Changes(answer=1, records={name: record_of(status)})
    )


def test_while_it_is_half_open_no_more_jobs_run_at_once_than_probes(bed: Bed) -> None:
    app, gateway = bed.app(), Gateway()
    gateway.up = True
    hold = asyncio.Event()

    @app.job(breaker=Breaker("stripe", probes=2), retry=AT_ONCE)
    async def charge() -> None:
        await gateway.call()
        await hold.wait()

    async def main() -> None:
        await put(app, BreakerStatus(name="stripe", state=BreakerState.HALF_OPEN))
        handles = await app.aenqueue_many(charge.draft() for _ in range(30))
        async with serving(app, concurrency=10), serving(app, concurrency=10):
            await until(lambda: gateway.calls == 2)
            await asyncio.sleep(1.5)  # Nothing happens, which takes its time.
            assert gateway.calls == 2
            assert sum((await status_of(app)).probes.values()) == 2
            hold.set()
            await becomes(app, BreakerState.CLOSED)
            for handle in handles:
                await in_state(handle, State.COMPLETED)

    asyncio.run(main())


def test_a_probe_that_fails_opens_it_again() -> None:
    app, gateway = Windlass("memory://"), Gateway()

    @app.job(breaker=Breaker("stripe", cooldown="1h"), retry=AT_ONCE)
    async def charge() -> None:
        await gateway.call()

    with travel(app, concurrency=10) as t:
        asyncio.run(put(app, BreakerStatus(name="stripe", state=BreakerState.HALF_OPEN)))
        app.enqueue_many(charge.draft() for _ in range(30))
        t.run_due()
        status = asyncio.run(status_of(app))
        assert status.state is BreakerState.OPEN
        assert status.why.startswith("a probe failed: ")
        assert gateway.calls == 1
        t.advance("59m")
        assert gateway.calls == 1
        t.advance("1m")
        assert gateway.calls == 2


def test_the_probe_of_a_worker_comes_back_when_its_lease_has_ended(bed: Bed) -> None:
    """Not before: one whose lease has merely run out may still be at it."""
    app, gateway = bed.app(), Gateway()
    gateway.up = True

    @app.job(breaker=Breaker("stripe"))
    async def charge() -> None:
        await gateway.call()

    async def main() -> None:
        ghost = WorkerInfo(
            id="ghost",
            name="ghost",
            host="there",
            pid=1,
            release="0",
            lease=timedelta(milliseconds=1),
            slots=1,
        )
        await app.store.open()
        await app.store.register(ghost)
        await put(
            app,
            BreakerStatus(name="stripe", state=BreakerState.HALF_OPEN, probes={"ghost": 1}),
        )
        handle = await charge.aenqueue()
        async with serving(app):
            await asyncio.sleep(1.5)  # Nothing happens, which takes its time.
            assert gateway.calls == 0
            await app.store.retire("ghost")
            await in_state(handle, State.COMPLETED)
            await becomes(app, BreakerState.CLOSED)
        assert (await status_of(app)).probes == {}

    asyncio.run(main())


@pytest.mark.parametrize("bed", ["memory"], indirect=True)
def test_a_probe_that_says_nothing_about_the_gateway_is_followed_by_another(bed: Bed) -> None:
    app, gateway = bed.app(), Gateway()
    gateway.up = True

    @app.job(breaker=Breaker("stripe"))
    async def charge(*, moot: bool) -> object:
        if moot:
            return Cancel("moot")
        await gateway.call()
        return None

    async def main() -> None:
        await put(app, BreakerStatus(name="stripe", state=BreakerState.HALF_OPEN))
        handles = [await charge.aenqueue(moot=True) for _ in range(5)]
        async with serving(app):
            for handle in handles:
                await in_state(handle, State.CANCELLED)
            assert (await status_of(app)).state is BreakerState.HALF_OPEN
            await charge.aenqueue(moot=False)
            await becomes(app, BreakerState.CLOSED)

    asyncio.run(main())


@pytest.mark.parametrize("bed", ["memory"], indirect=True)
def test_unused_probes_are_given_back(bed: Bed) -> None:
    app = bed.app()

    @app.job(breaker=Breaker("stripe", probes=3))
    async def charge() -> None:
        pass

    async def main() -> None:
        await put(app, BreakerStatus(name="stripe", state=BreakerState.HALF_OPEN))
        async with serving(app):
            await in_state(await charge.aenqueue(), State.COMPLETED)

            async def is_free() -> bool:
                status = await status_of(app)
                return status.successes == 1 and status.probes == {}

            await until(is_free)
            assert (await status_of(app)).state is BreakerState.HALF_OPEN

    asyncio.run(main())
