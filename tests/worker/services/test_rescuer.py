"""Jobs of a worker whose lease ran out are rescued, and those that kill their workers end."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import cast

import pytest

from tests.support.app_on_store import Bed, Clock, log_lines, on_embedded_stores, serving, until
from tests.support.worker_state import RecordingState
from windlass import State
from windlass.core.claims.lanes import Ask, Claim
from windlass.core.jobs.job import Checkpoint, Job, Lane, Saga
from windlass.core.jobs.retry import Retry
from windlass.core.jobs.settle import Policy, Transition
from windlass.core.workers import WorkerInfo, WorkerPulse
from windlass.core.workflows.step_log import Started, Steps, written
from windlass.store import Store
from windlass.worker import heartbeat as heart
from windlass.worker.engine.settler import Settler
from windlass.worker.engine.writing.completer import Completer
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
