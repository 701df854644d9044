"""Never more jobs start in any window than a rate allows, over all workers."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from tests.support.app_on_store import QUICK, Bed, serving
from tests.worker.policies.limit_meter import Meter, done, three

pytestmark = pytest.mark.stores("postgres")


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
