"""Service-level targets in a running worker: who is pulled forward, and what is counted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.app_on_store import Bed, Through, in_state, log_lines, serving, until
from windlass import State, StoreUnavailable


def test_a_job_whose_target_is_in_jeopardy_starts_before_any_priority(bed: Bed) -> None:
    app = bed.app()
    order: list[str] = []
    go = asyncio.Event()

    @app.job
    async def hold() -> None:
        await go.wait()

    @app.job(priority=1000)
    async def urgent() -> None:
        order.append("urgent")

    @app.job(priority=-1000, slo="200ms")
    async def promised() -> None:
        order.append("promised")

    async def main() -> None:
        async with serving(app, concurrency=1):
            await in_state(await hold.aenqueue(), State.RUNNING)
            await promised.aenqueue()
            await app.aenqueue_many(urgent.draft() for _ in range(5))
            await asyncio.sleep(0.15)  # More than half of the target.
            go.set()
            await until(lambda: len(order) == 6)
        assert order[0] == "promised"

    asyncio.run(main())


def test_late_starts_are_counted_for_the_whole_cluster_and_logged(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    app = bed.app()

    @app.job(slo="50ms")
    async def promised() -> None: ...

    async def record() -> dict[str, Any]:
        return dict((await app.store.records("slo:")).get("slo:promised") or {})

    async def main() -> None:
        late = await app.aenqueue_many(promised.draft() for _ in range(20))
        await asyncio.sleep(0.1)
        async with serving(app, concurrency=2) as one, serving(app, concurrency=2) as other:
            for handle in late:
                await handle.aresult("60s")
            for _ in range(5):
                await (await promised.aenqueue()).aresult("60s")
        found = await record()
        counted = [each._parts.status.figures().counts for each in (one, other)]
        for family, expected in (("starts", 25), ("late_starts", found["late"])):
            told_of = [dict(each[f"windlass_kind_{family}_total"]) for each in counted]
            assert sum(each.get(("promised",), 0) for each in told_of) == expected
        assert (found["started"], found["target"]) == (25, 0.05)
        assert 20 <= found["late"] <= 25
        assert found["worst"] >= 0.1
        assert found["last"]["waited"] > 0.05

    asyncio.run(main())
    lines = log_lines(caplog, "slo.missed")
    assert 1 <= len(lines) <= 2, "one of each worker, however many were late"
    assert (lines[0]["kind"], lines[0]["target"]) == ("promised", "50ms")


def test_late_starts_that_could_not_be_written_are_counted_later(bed: Bed) -> None:
    class Forgetful(Through):
        refused = 0

        async def apply(self, names: Any, decide: Any) -> Any:
            if any(name.startswith("slo:") for name in names) and self.refused < 2:
                self.refused += 1
                raise StoreUnavailable("not now")
            return await self.inner.apply(names, decide)

    store = Forgetful(bed.store())
    app = bed.app(store=store)

    @app.job(slo="1h")
    async def promised() -> None: ...

    async def main() -> None:
        async with serving(app):
            await (await promised.aenqueue()).aresult("60s")
            await until(lambda: store.refused == 2)
            await (await promised.aenqueue()).aresult("60s")
        (record,) = (await app.store.records("slo:")).values()
        assert (record["started"], record["late"]) == (2, 0)

    asyncio.run(main())


def test_a_worker_without_targets_writes_no_record(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def plain() -> None: ...

    async def main() -> None:
        async with serving(app) as worker:
            await (await plain.aenqueue()).aresult("60s")
            assert not worker._parts.engine.slo
        assert await app.store.records("slo:") == {}

    asyncio.run(main())
