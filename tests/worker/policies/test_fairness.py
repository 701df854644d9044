"""Fairness in a running worker: one tenant's flood, and how long another's next job waits."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.app_on_store import QUICK, Bed, Through, log_lines, serving, until
from windlass import ConfigError, Kind, Windlass
from windlass.core.claims.lanes import Claim
from windlass.core.jobs.job import Job
from windlass.store import Store
from windlass.worker.engine import start_pace

SERVICE = 0.1
"""Seconds that a job of these tests takes: much longer than it takes to claim one."""
FLOOD = 3_000
SLOTS = 4


def tenants(app: Windlass, began: list[str]) -> Any:
    """Register a fair kind whose handler notes who was served."""

    @app.job(fair_by="tenant")
    async def serve(tenant: str) -> None:
        began.append(tenant)
        await asyncio.sleep(SERVICE)

    return serve


@pytest.mark.parametrize("workers", [1, 2])
def test_a_flood_delays_the_next_job_of_another_tenant_by_three_service_times_at_most(
    bed: Bed, workers: int
) -> None:
    app = bed.app(queue_size=2 * FLOOD)
    began: list[str] = []
    serve = tenants(app, began)

    async def main() -> None:
        await app.aenqueue_many(serve.draft("flood") for _ in range(FLOOD))
        async with AsyncExitStack() as stack:
            for _ in range(workers):
                await stack.enter_async_context(
                    serving(app, concurrency=SLOTS, shutdown_timeout="1s")
                )
            await until(lambda: len(began) > 20)
            for number in range(5):
                await asyncio.sleep(SERVICE * number / 4)  # At any moment of a job's time.
                other = await serve.aenqueue(f"other-{number}")
                before = len(began)
                await other.aresult("60s")
                # Counted, not timed: a busy machine makes everybody's service longer.
                overtaken_by = began.index(f"other-{number}") - before
                assert overtaken_by <= 3 * SLOTS * workers
            assert Counter(began)["flood"] > 20

    asyncio.run(main())


def test_without_fairness_the_same_job_waits_behind_the_flood(bed: Bed) -> None:
    """Shows that the test above can fail: by its arguments alone nothing is fair."""
    app = bed.app()
    began: list[str] = []

    @app.job
    async def serve(tenant: str) -> None:
        began.append(tenant)
        await asyncio.sleep(0.01)

    async def main() -> None:
        await app.aenqueue_many(serve.draft("flood") for _ in range(300))
        async with serving(app, concurrency=4):
            await until(lambda: len(began) > 10)
            await (await serve.aenqueue("other")).aresult("60s")
        assert began.index("other") >= 290

    asyncio.run(main())


def test_weights_divide_the_slots(bed: Bed) -> None:
    app = bed.app(queue_size=2_000)
    began: list[str] = []

    @app.job(fair_by="tenant", weights={"acme": 3})
    async def serve(tenant: str) -> None:
        began.append(tenant)
        await asyncio.sleep(0.002)

    async def main() -> None:
        await app.aenqueue_many(serve.draft(who) for who in ("acme", "bolt") for _ in range(600))
        async with serving(app, concurrency=8):
            await until(lambda: len(began) >= 400)
            counts = Counter(began[:400])
        assert counts["acme"] == pytest.approx(300, abs=24)

    asyncio.run(main())


def test_many_tenants_of_few_jobs_are_all_served(bed: Bed) -> None:
    app = bed.app()
    served = Counter[str]()

    @app.job(fair_by="tenant")
    async def serve(tenant: str) -> None:
        served[tenant] += 1

    async def main() -> None:
        names = [f"tenant-{number}" for number in range(300)]
        await app.aenqueue_many(serve.draft(name) for _ in range(3) for name in names)
        await asyncio.wait_for(app.arun_worker(burst=True, **QUICK), 60)

    asyncio.run(main())
    assert set(served.values()) == {3}
    assert len(served) == 300


def test_a_weight_that_cannot_be_computed_is_one_and_logged_once(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    app = bed.app()

    def weigh(key: str) -> float:
        raise LookupError(f"nobody knows {key}")

    @app.job(fair_by="tenant", weights=weigh)
    async def serve(tenant: str) -> str:
        return tenant

    async def main() -> None:
        handles = await app.aenqueue_many(serve.draft(who) for who in "abc" for _ in range(3))
        async with serving(app):
            for handle in handles:
                await handle.aresult("60s")

    asyncio.run(main())
    (warning,) = log_lines(caplog, "weight.unknown")
    assert "nobody knows" in warning["error"]


# -- what is refused at import ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"fair_by": "tenant_id"}, "no argument 'tenant_id'"),
        ({"fair_by": 5}, "the name of an argument or a function of the arguments, got 5"),
        ({"fair_by": "tenant", "key": "host"}, "one key"),
        ({"weights": {"acme": 3}}, "together with fair_by="),
        ({"fair_by": "tenant", "weights": {"acme": 0}}, "a number from 0.001 to 1000"),
        ({"slo": "whenever"}, "start within 5s"),
        ({"slo": 0}, "greater than zero"),
    ],
)
def test_nonsense_is_refused_where_it_is_written(options: dict[str, Any], why: str) -> None:
    job: Any = Windlass("memory://").job

    async def serve(tenant: str, host: str) -> None: ...

    with pytest.raises(ConfigError, match=why):
        job(**options)(serve)


def test_the_same_key_may_be_given_twice_and_by_a_kind() -> None:
    app = Windlass("memory://")

    @app.job(fair_by="tenant", key="tenant", name="one")
    async def one(tenant: str) -> None: ...

    @app.job(Kind("two", dict[str, str], key="tenant"), fair_by="tenant")
    async def two(payload: dict[str, str]) -> None: ...

    assert [app.registry[kind].key for kind in ("one", "two")] == ["tenant", "tenant"]
    assert [app.registry[kind].weights for kind in ("one", "two")] == [{}, {}]


class Slow(Through):
    """A store whose claims bring half of what was asked, as if others had the rest.

    None is answered before another was sent, or it is evident that none will be.
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.under_way = 0
        self.ahead = asyncio.Event()

    async def claim(self, claim: Claim, *, worker: str, token: int) -> list[Job]:
        self.under_way += 1
        if self.under_way > 1:
            self.ahead.set()
        half = replace(claim, asks=claim.asks[: (len(claim.asks) + 1) // 2])
        try:
            jobs: list[Job] = await self.inner.claim(half, worker=worker, token=token)
            with suppress(TimeoutError):
                await asyncio.wait_for(self.ahead.wait(), 2)
            return jobs
        finally:
            self.under_way -= 1


def test_where_keys_have_their_turn_later_the_next_claim_does_not_wait_for_the_last(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents that a worker of many tenants with few jobs each idles for a round trip a claim."""
    # A busy machine starts jobs slowly, and a worker claims no more than it can start soon.
    monkeypatch.setattr(start_pace, "_MAX_AHEAD_SECONDS", 60.0)
    store = Slow(bed.store(size=2_000))
    app = bed.app(store=store)
    began: list[str] = []

    @app.job(fair_by="tenant")
    async def serve(tenant: str) -> None:
        began.append(tenant)

    async def main() -> None:
        await app.aenqueue_many(serve.draft(f"t{number}") for number in range(1_000))
        async with serving(app, concurrency=2_000, claim_size=200):
            await until(lambda: len(began) == 1_000)

    asyncio.run(main())
    assert store.ahead.is_set()
