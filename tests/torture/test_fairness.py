"""Case 42, at length: a hundred thousand jobs of one tenant, and the next one of another."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.app_on_store import Bed, bed, serving, until

__all__ = ["bed"]
FLOOD = 100_000
SERVICE = 0.1
SLOTS = 20
WORKERS = 2
OTHERS = 40


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("bed", ["sqlite", "postgres"], indirect=True)
def test_a_flood_of_a_hundred_thousand_jobs_delays_no_other_tenant(bed: Bed) -> None:
    """Prevents: a customer's import that keeps all other customers waiting for an hour."""
    app = bed.app()
    began: list[str] = []

    @app.job(fair_by="tenant")
    async def serve(tenant: str) -> None:
        began.append(tenant)
        await asyncio.sleep(SERVICE)

    async def main() -> None:
        for _ in range(FLOOD // 5_000):
            await app.aenqueue_many(serve.draft("flood") for _ in range(5_000))
        flags = {"concurrency": SLOTS, "shutdown_timeout": "1s"}
        overtaken = []
        async with serving(app, **flags), serving(app, **flags):
            await until(lambda: len(began) > 100)
            for number in range(OTHERS):
                before = len(began)
                await (await serve.aenqueue(f"other-{number}")).aresult("60s")
                overtaken.append(began.index(f"other-{number}") - before)
        # By turns, not by seconds: on a busy machine those of the flood begin late as well. All
        # slots may be filled by claims that are under way, once more before the next ones see it,
        # and a last time by those that come along with it.
        assert max(overtaken) <= 3 * WORKERS * SLOTS
        assert began.count("flood") > OTHERS * WORKERS

    asyncio.run(main())
