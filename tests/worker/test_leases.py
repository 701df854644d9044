"""A worker holds its jobs by its lease: renewed beside them, given up when lost, then rescued."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

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
from windlass.core.claims.lanes import Ask, Claim
from windlass.core.claims.plan import Policies
from windlass.core.jobs.job import Checkpoint, Job, Lane, Saga
from windlass.core.jobs.queries import JobFilter, Retention
from windlass.core.jobs.retry import Retry
from windlass.core.jobs.settle import Policy, Transition
from windlass.core.workers import WorkerInfo, WorkerPulse
from windlass.core.workflows.step_log import Started, Steps, written
from windlass.store import Store
from windlass.worker import heartbeat as heart
from windlass.worker.engine.settler import Settler
from windlass.worker.engine.writing.completer import Completer
from windlass.worker.services.housekeeping import Pruner
from windlass.worker.services.rescuer import Rescuer

pytestmark = pytest.mark.stores("postgres")

LEASE = timedelta(seconds=30)


@pytest.fixture(autouse=True)
def beats_by_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers renew as seldom as their lease allows: here the store's clock moves by hand."""
    monkeypatch.setattr(heart, "BEAT_SECONDS", math.inf)


async def register(store: Store, name: str, lease: timedelta = LEASE, *, host: str = "h") -> str:
    info = WorkerInfo(id=name, name=name, host=host, pid=1, release="1", lease=lease, slots=10)
    await store.register(info)
    return name


async def claim_one(store: Store, kind: str, worker: str, token: int = 7) -> Job:
    ask = Ask(lane=Lane("default", kind), count=1)
    (job,) = await store.claim(Claim(asks=(ask,)), worker=worker, token=token)
    return job


async def beat(store: Store, worker: str) -> bool:
    return await asyncio.to_thread(store.heartbeat, worker, WorkerPulse(), timedelta(seconds=5))


def usual(_: Job) -> Policy:
    return Policy(retry=Retry())


def rescuer(store: Store, worker: str, policy: Callable[[Job], Policy] = usual) -> Rescuer:
    """Make a rescuer whose outcomes are settled at the end of each tick."""
    moves: list[Transition] = []

    class Settling(Rescuer):
        async def tick(self) -> float:
            delay = await super().tick()
            await store.settle(moves)
            moves.clear()
            return delay

    return Settling(
        store,
        interval=LEASE / 3,
        state=RecordingState(worker),
        settler=cast("Settler", SimpleNamespace(policy=policy)),
        completer=cast("Completer", SimpleNamespace(add=lambda _, move: moves.append(move))),
    )


async def season(clock: Clock, store: Store, worker: str) -> None:
    """Let a little more than a lease pass, in which only this worker renews its own."""
    for _ in range(4):
        clock.advance(seconds=10)
        assert await beat(store, worker)


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


def test_a_dead_workers_job_is_rescued_by_a_living_one(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    app = bed.app()

    @app.job
    async def work() -> int:
        return 1

    async def main() -> None:
        handle = await work.aenqueue()
        await register(app.store, "dead", timedelta(seconds=1))
        await claim_one(app.store, "work", "dead")
        async with serving(app, lease="1s"):
            assert await handle.aresult("60s") == 1
            job = await handle.ainfo()
            assert (job.attempt, job.crashes, job.failures) == (2, 0, 0)
            assert job.history[0].outcome == "lost with its host"
            assert job.history[0].worker == "dead"

    asyncio.run(main())
    (line,) = log_lines(caplog, "job.rescued")
    assert (line["lost_by"], line["attempt"], line["state"]) == ("dead", 1, "pending")
    assert log_lines(caplog, "job.released") == []


def test_a_job_that_takes_worker_after_worker_with_it_is_suspected_and_dead_in_the_end(
    bed: Bed,
) -> None:
    """The first loss may be chance, the second makes it a suspect; then it runs alone."""
    clock = Clock()
    app = bed.app(store=bed.store(clock=clock))

    @app.job
    async def killer() -> None: ...

    async def main() -> None:
        store = app.store
        handle = await killer.aenqueue()
        alive = await register(store, "alive")
        for run in range(1, 9):
            await register(store, f"victim {run}")
            await claim_one(store, "killer", f"victim {run}", token=run)
            await season(clock, store, alive)
            await rescuer(store, alive).tick()
            job = await handle.ainfo()
            assert (job.crashes, job.failures) == (max(run - 2, 0) // 2, 0)
            assert job.state is (State.DEAD if run == 8 else State.PENDING)
        assert "killed its process 3 times" in (job.reason or "")
        assert [attempt.outcome for attempt in job.history] == [
            *("lost", "suspected", *("lost", "crashed") * 3)
        ]
        assert [attempt.worker for attempt in job.history] == [f"victim {n}" for n in range(1, 9)]

    asyncio.run(main())


def test_a_job_that_is_lost_too_often_is_undone_before_it_is_dead(bed: Bed) -> None:
    """Prevents a rescue that ends a job, and leaves standing what its steps have done."""
    clock = Clock()
    app = bed.app(store=bed.store(clock=clock))

    @app.job
    async def killer() -> None: ...

    async def main() -> None:
        store = app.store
        handle = await killer.aenqueue()
        alive = await register(store, "alive")
        for run in range(1, 9):
            await register(store, f"victim {run}")
            await claim_one(store, "killer", f"victim {run}", token=run)
            if run == 1:
                steps = (written(Started(name="hotel")),)
                checkpoint = Checkpoint(id=handle.id, token=run, steps=steps, saga=Saga.READY)
                assert await store.checkpoint([checkpoint]) == [True]
            await season(clock, store, alive)
            await rescuer(store, alive).tick()
        job = await handle.ainfo()
        assert (job.state, job.saga, job.crashes) == (State.PENDING, Saga.UNDOING, 3)
        assert (job.reason or "").startswith("undoing: killed its process 3 times")
        assert Steps(job.steps).to_undo == ["hotel"]

    asyncio.run(main())


@on_embedded_stores
def test_a_job_that_cannot_be_settled_holds_up_no_other_that_was_lost_with_it(bed: Bed) -> None:
    """Prevents one bad job that keeps a worker from rescuing any, for ever."""
    clock = Clock()
    app = bed.app(store=bed.store(clock=clock))

    @app.job
    async def work() -> None: ...

    async def main() -> None:
        store = app.store
        bad, good = [await work.aenqueue() for _ in range(2)]
        alive = await register(store, "alive")
        await register(store, "victim")
        for token in (1, 2):
            await claim_one(store, "work", "victim", token=token)
        await season(clock, store, alive)

        def policy(job: Job) -> Policy:
            if job.id == bad.id:
                raise LookupError("no policy")
            return usual(job)

        await rescuer(store, alive, policy).tick()
        dead = await bad.ainfo()
        assert (dead.state, dead.reason) == (
            State.DEAD,
            "cannot be settled: LookupError: no policy",
        )
        assert await good.astate() is State.PENDING

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


def test_a_worker_that_has_not_held_a_whole_lease_rescues_nobody(bed: Bed) -> None:
    clock = Clock()
    app = bed.app(store=bed.store(clock=clock))

    @app.job
    async def work() -> None: ...

    async def main() -> None:
        handle = await work.aenqueue()
        await register(app.store, "dead")
        await claim_one(app.store, "work", "dead")
        clock.advance(minutes=5)
        fresh = await register(app.store, "fresh")
        await rescuer(app.store, fresh).tick()
        assert await handle.astate() is State.RUNNING

    asyncio.run(main())


def test_a_stale_worker_cannot_settle_a_rescued_job(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    app = bed.app(store=bed.store(clock=clock))
    began, go = asyncio.Event(), asyncio.Event()

    @app.job
    async def work() -> str:
        began.set()
        await go.wait()
        return "stale"

    async def main() -> None:
        store = app.store
        async with serving(app, lease="30s") as worker:
            handle = await work.aenqueue()
            await began.wait()
            rival = await register(store, "rival")
            jobs: list[Job] = []
            while not jobs:  # A heartbeat of the worker may come between the two.
                await season(clock, store, rival)
                jobs = await store.rescue(worker=rival, token=99, limit=10)
            assert [job.id for job in jobs] == [handle.id]
            go.set()
            holder = worker.id
            await until(lambda: log_lines(caplog, "job.fenced"))
            assert {line["worker_id"] for line in log_lines(caplog, "job.fenced")} == {holder}
            job = await handle.ainfo()
            assert (job.state, job.token, job.result) == (State.RUNNING, 99, None)
            assert worker.processed == 1

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


def test_the_loss_of_a_host_makes_no_suspects(bed: Bed) -> None:
    """X6: when no worker of a host is left, the host is lost, and that says nothing of its jobs."""
    clock = Clock()
    app = bed.app(store=bed.store(clock=clock))

    @app.job
    async def innocent() -> None: ...

    async def main() -> None:
        store = app.store
        handle = await innocent.aenqueue()
        alive = await register(store, "alive")
        for run in (1, 2):
            await register(store, f"far {run}", host=f"host {run}")
            await claim_one(store, "innocent", f"far {run}", token=run)
            await season(clock, store, alive)
            await rescuer(store, alive).tick()
        job = await handle.ainfo()
        assert (job.state, job.crashes, job.failures) == (State.PENDING, 0, 0)
        assert [attempt.outcome for attempt in job.history] == ["lost with its host"] * 2

    asyncio.run(main())
