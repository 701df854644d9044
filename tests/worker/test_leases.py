"""A worker holds its jobs by its lease: renewed beside them, given up when lost, then rescued."""

from __future__ import annotations

import asyncio
import math
import time
from datetime import timedelta
from typing import Any

import pytest

from tests.support.app_on_store import (
    Bed,
    Clock,
    Through,
    in_state,
    log_lines,
    on_embedded_stores,
    serving,
    until,
)
from tests.support.worker_state import RecordingState
from windlass import State, Windlass
from windlass.core.claims.plan import Policies
from windlass.core.jobs.queries import JobFilter, Retention
from windlass.core.jobs.settle import Transition
from windlass.core.workers import WorkerInfo
from windlass.worker import heartbeat as heart
from windlass.worker.services.housekeeping import Pruner

pytestmark = pytest.mark.stores("postgres")


@pytest.fixture(autouse=True)
def beats_by_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers renew as seldom as their lease allows: here the store's clock moves by hand."""
    monkeypatch.setattr(heart, "BEAT_SECONDS", math.inf)


def test_a_lost_lease_ends_the_runs_and_the_worker_goes_on_under_a_new_id(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    app = bed.app()
    began: list[int] = []
    go = asyncio.Event()

    @app.job
    async def work(n: int) -> str:
        began.append(n)
        if len(began) == 1:
            await asyncio.Event().wait()
        await go.wait()
        return "done"

    async def main() -> None:
        async with serving(app, lease="1s") as worker:
            handle = await work.aenqueue(1)
            await until(lambda: began == [1])
            old = worker.id
            await app.store.retire(old)
            await until(lambda: worker.id not in ("", old))
            go.set()
            assert await handle.aresult("60s") == "done"
            job = await handle.ainfo()
            assert (job.failures, job.crashes, job.worker) == (0, 0, worker.id)
            assert [attempt.worker for attempt in job.history] == [old]
            assert await (await work.aenqueue(2)).aresult("60s") == "done"

    asyncio.run(main())
    assert len(log_lines(caplog, "lease.lost")) == 1


class SlowToRegister(Through):
    """A store whose second registration takes a while."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.registered: list[str] = []

    async def register(self, worker: WorkerInfo) -> None:
        self.registered.append(worker.id)
        if len(self.registered) > 1:
            # Longer than a third of the lease, after which the heart beats again.
            await asyncio.sleep(0.8)
        await self.inner.register(worker)


def test_a_lost_lease_is_replaced_by_one_new_one(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    """Prevents: the heart beats while the new lease is under way, and finds that one lost as well.

    The worker then holds jobs under an id whose lease nobody renews.
    """
    store = SlowToRegister(bed.store())
    app = bed.app(store=store)

    @app.job
    async def work() -> int:
        return 1

    async def main() -> None:
        async with serving(app, lease="1s") as worker:
            await app.store.retire(worker.id)
            await until(lambda: len(store.registered) > 1)
            assert await (await work.aenqueue()).aresult("60s") == 1

    asyncio.run(main())
    assert len(store.registered) == 2
    assert len(log_lines(caplog, "lease.lost")) == 1


def test_the_heart_beats_while_a_handler_blocks_the_loop(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    app = bed.app()

    @app.job
    async def rude() -> None:
        time.sleep(2.5)  # noqa: ASYNC251 - this is what users do.

    async def main() -> None:
        async with serving(app, lease="1s") as worker:
            before = worker.id
            await (await rude.aenqueue()).aresult("60s")
            assert worker.id == before

    asyncio.run(main())
    assert log_lines(caplog, "lease.lost") == []
    (stalled,) = log_lines(caplog, "loop.stalled")
    assert "time.sleep(2.5)" in stalled["stack"]


def test_a_long_job_keeps_its_lease_by_the_heartbeat(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def long(n: int) -> int:
        await asyncio.sleep(1.6)
        return n

    async def main() -> None:
        async with serving(app, lease="1s"), serving(app, lease="1s"):
            handle = await long.aenqueue(1)
            assert await handle.aresult("60s") == 1
            job = await handle.ainfo()
            assert (job.attempt, job.crashes) == (1, 0)

    asyncio.run(main())


@on_embedded_stores
def test_a_run_whose_outcome_cannot_be_decided_frees_what_it_held(bed: Bed) -> None:
    """Prevents limits and slots that are taken for ever by a run that has ended."""
    app = bed.app()

    @app.job(concurrency=1)
    async def work(number: int) -> int:
        return 1 // number

    async def main() -> None:
        async with serving(app) as worker:
            patch, judge = pytest.MonkeyPatch(), worker._setup.settler
            end = judge.end

            def once(*_: Any) -> Transition:
                patch.setattr(judge, "end", end)
                raise LookupError("undecided")

            patch.setattr(judge, "end", once)
            bad = await work.aenqueue(0)
            job = await in_state(bad, State.DEAD)
            assert job.reason == "cannot be settled: LookupError: undecided"
            assert await (await work.aenqueue(1)).aresult("60s") == 1

    asyncio.run(main())


def test_the_pruner_deletes_what_is_past_its_retention(bed: Bed) -> None:
    clock = Clock()
    app = bed.app(store=bed.store(clock=clock))

    @app.job(max_retries=0)
    async def work(fail: bool) -> None:
        if fail:
            raise ValueError("no")

    async def main() -> None:
        async with serving(app, lease="1h"):
            done, dead = await work.aenqueue(False), await work.aenqueue(True)
            cancelled = await work.using(delay="1h").aenqueue(False)
            await cancelled.acancel()
            await in_state(done, State.COMPLETED)
            await in_state(dead, State.DEAD)
        waiting = await work.using(delay="30d").aenqueue(False)
        await prune(app, Retention())
        assert len(await left(app)) == 4
        clock.advance(days=8)  # PostgreSQL keeps whole days.
        await prune(app, Retention())
        assert await left(app) == {dead.id, waiting.id}
        await prune(app, Retention(dead=timedelta(days=7)))
        assert await left(app) == {waiting.id}

    async def prune(app: Windlass, retention: Retention) -> None:
        assert await Pruner(app.store, retention, state=RecordingState()).tick() > 0

    async def left(app: Windlass) -> set[Any]:
        return {job.id for job in (await app.store.find(JobFilter(), limit=100)).jobs}

    asyncio.run(main())


def test_a_worker_prunes_by_the_retention_that_is_set(bed: Bed) -> None:
    clock = Clock()
    app = bed.app(store=bed.store(clock=clock), retention="1h", dead_retention="2h")

    @app.job
    async def work() -> None: ...

    async def main() -> None:
        async with serving(app, lease="1h"):
            old = await work.aenqueue()
            await in_state(old, State.COMPLETED)
        clock.advance(hours=1, seconds=1)
        async with serving(app, lease="1h"):
            await until(lambda: gone(old.id))

    async def gone(job_id: Any) -> bool:
        return await app.store.get(job_id) is None

    asyncio.run(main())


def test_the_pruner_goes_on_at_once_while_there_is_more(bed: Bed) -> None:
    clock = Clock()
    store = bed.store(clock=clock, size=5000)
    app = bed.app(store=store)

    @app.job
    async def work() -> None: ...

    async def main() -> None:
        handles = await app.aenqueue_many(work.draft() for _ in range(1001))
        await asyncio.gather(*(handle.acancel() for handle in handles))
        clock.advance(hours=2)
        pruner = Pruner(store, Retention(finished=timedelta(hours=1)), state=RecordingState())
        assert await pruner.tick() == 0
        assert await pruner.tick() > 0
        assert (await store.find(JobFilter(), limit=10)).jobs == ()

    asyncio.run(main())


def test_policies_know_the_kinds_of_the_registry(bed: Bed) -> None:
    app = bed.app()

    @app.job(aliases=["was"])
    def work() -> None: ...

    policies = app.worker()._state.policies
    assert isinstance(policies, Policies)
    assert set(policies.kinds) == {"work", "was", "windlass.flow", "windlass.pipeline"}
