"""Case 42, at length: a hundred thousand jobs of one tenant, and the next one of another."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest

from tests.app.bed import Bed, bed, serving, until

__all__ = ["bed"]
FLOOD = 100_000
SERVICE = 0.1


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("bed", ["sqlite", "postgres"], indirect=True)
def test_a_flood_of_a_hundred_thousand_jobs_delays_no_other_tenant(bed: Bed) -> None:
    """Prevents: a customer's import that keeps all other customers waiting for an hour."""
    app = bed.app()
    began: list[tuple[str, float]] = []

    @app.job(fair_by="tenant")
    async def serve(tenant: str) -> None:
        began.append((tenant, time.monotonic()))
        await asyncio.sleep(SERVICE)

    async def main() -> None:
        for _ in range(FLOOD // 5_000):
            await app.aenqueue_many(serve.draft("flood") for _ in range(5_000))
        flags = {"slots": 20, "shutdown_timeout": "1s"}
        waits = []
        async with serving(app, **flags), serving(app, **flags):
            await until(lambda: len(began) > 100)
            for number in range(100):
                sent = time.monotonic()
                await (await serve.aenqueue(f"other-{number}")).aresult("60s")
                waits.append(next(at for who, at in began if who == f"other-{number}") - sent)
        assert max(waits) <= 3 * SERVICE
        assert Counter(who for who, _ in began)["flood"] > 1_000

    asyncio.run(main())
