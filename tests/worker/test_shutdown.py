"""A worker that is told to stop claims nothing more, finishes what runs, gives back the rest."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.app_on_store import QUICK, Bed, Through, in_state, serving, started, until
from windlass import State, StoreUnavailable, Windlass
from windlass.core.jobs.settle import Transition
from windlass.worker import Worker


async def begin(app: Windlass, **flags: Any) -> tuple[Worker, asyncio.Task[None]]:
    worker = app.worker(**QUICK | flags)
    task = asyncio.create_task(worker.run())
    await until(lambda: started(worker))
    return worker, task


def test_a_drain_finishes_running_jobs_and_leaves_waiting_ones(bed: Bed) -> None:
    app = bed.app()
    go, began = asyncio.Event(), asyncio.Event()

    @app.job
    async def work() -> int:
        began.set()
        await go.wait()
        return 1

    async def main() -> None:
        worker, task = await begin(app, concurrency=1)
        first, second = await work.aenqueue(), await work.aenqueue()
        await began.wait()
        worker.stop()
        await asyncio.sleep(0)
        assert not task.done()
        go.set()
        await asyncio.wait_for(task, 60)
        assert await first.astate() is State.COMPLETED
        job = await second.ainfo()
        assert (job.state, job.attempt) == (State.PENDING, 0)

    asyncio.run(main())


@pytest.mark.parametrize("pool", ["loop", "threads"])
def test_a_second_stop_gives_everything_back_at_once_and_charges_nothing(
    bed: Bed, pool: str
) -> None:
    app = bed.app()
    began, go = threading.Event(), threading.Event()

    def hang() -> None:
        began.set()
        go.wait(60)

    async def ahang() -> None:
        began.set()
        await asyncio.Event().wait()

    register: Any = app.job
    handler = register(name="hang")(ahang if pool == "loop" else hang)

    async def main() -> None:
        worker, task = await begin(app, shutdown_timeout="1h", threads=1)
        handle = await handler.aenqueue()
        await until(began.is_set)
        worker.stop()
        worker.stop()
        asked = time.monotonic()
        await asyncio.wait_for(task, 60)
        assert time.monotonic() - asked < 30
        job = await handle.ainfo()
        assert (job.state, job.failures, job.crashes) == (State.PENDING, 0, 0)
        assert (job.reason, job.history[-1].outcome) == ("shutdown", "released")
        go.set()

    asyncio.run(main())


def test_jobs_that_exceed_the_shutdown_timeout_are_given_back(bed: Bed) -> None:
    app = bed.app()
    began = asyncio.Event()

    @app.job
    async def hang() -> None:
        began.set()
        await asyncio.Event().wait()

    async def main() -> None:
        worker, task = await begin(app, shutdown_timeout="100ms")
        handle = await hang.aenqueue()
        await began.wait()
        worker.stop()
        await asyncio.wait_for(task, 60)
        assert (await handle.ainfo()).state is State.PENDING

    asyncio.run(main())


class SlowToSettle(Through):
    """A store whose first settle takes until it is told to go on."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.under_way, self.go = asyncio.Event(), asyncio.Event()

    async def settle(self, transitions: Sequence[Transition]) -> list[bool]:
        if not self.under_way.is_set():
            self.under_way.set()
            await self.go.wait()
        return await self.inner.settle(transitions)


def test_an_outcome_that_comes_while_another_is_written_is_written_before_the_end(
    bed: Bed,
) -> None:
    """Prevents: the last job of a drain stays running, is rescued as a crash and runs twice."""
    store = SlowToSettle(bed.store())
    app = bed.app(store=store)
    go = asyncio.Event()

    @app.job
    async def first() -> None: ...

    @app.job
    async def second() -> None:
        await go.wait()

    async def main() -> None:
        worker, task = await begin(app)
        two = await second.aenqueue()
        await in_state(two, State.RUNNING)
        one = await first.aenqueue()
        await store.under_way.wait()
        worker.stop()
        go.set()
        await until(lambda: worker.processed == 2)
        # The drain is over, and the completer is asked to end while it still writes `first`.
        await until(lambda: worker._parts.engine.completer._stopping.is_set())
        store.go.set()
        await asyncio.wait_for(task, 60)
        assert await one.astate() is State.COMPLETED
        assert await two.astate() is State.COMPLETED

    asyncio.run(main())


class SettlesInTheEnd(Through):
    """A store that is away for the first settles."""

    failures = 3

    async def settle(self, transitions: Sequence[Transition]) -> list[bool]:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("gone for a moment")
        return await self.inner.settle(transitions)


def test_an_outcome_that_could_not_be_written_yet_is_tried_again_in_the_drain(bed: Bed) -> None:
    """Prevents: a store that is away for a moment of the shutdown costs a finished job."""
    store = SettlesInTheEnd(bed.store())
    app = bed.app(store=store)
    ran = asyncio.Event()

    @app.job
    async def work() -> None:
        ran.set()

    async def main() -> None:
        worker, task = await begin(app)
        handle = await work.aenqueue()
        await ran.wait()
        worker.stop()
        await asyncio.wait_for(task, 60)
        assert await handle.astate() is State.COMPLETED

    asyncio.run(main())


def test_cancelling_an_embedded_worker_drains_it(bed: Bed) -> None:
    app = bed.app()
    began, go = asyncio.Event(), asyncio.Event()

    @app.job
    async def work() -> int:
        began.set()
        await go.wait()
        return 1

    async def main() -> None:
        task = asyncio.create_task(app.arun_worker(poll_interval="20ms"))
        handle = await work.aenqueue()
        await began.wait()
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        go.set()
        await asyncio.wait({task}, timeout=10)
        assert task.done()
        assert task.cancelled() or task.exception() is None
        assert await handle.astate() is State.COMPLETED
        assert not [worker for worker in await app.store.workers() if worker.alive]
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


def test_a_program_that_ends_without_stopping_its_worker_gives_its_jobs_back(bed: Bed) -> None:
    """`asyncio.run` cancels every task at once when the program's main coroutine returns.

    Prevents: the worker's own services are cancelled too, nothing is settled, and its jobs are
    stuck until somebody rescues them as crashed.
    """
    app = bed.app()
    began = asyncio.Event()

    @app.job(max_retries=0)
    async def hang() -> None:
        began.set()
        await asyncio.Event().wait()

    handles = []

    async def main() -> None:
        background = asyncio.create_task(
            app.arun_worker(poll_interval="20ms", shutdown_timeout="100ms")
        )
        handles.append(await hang.aenqueue())
        await began.wait()
        assert not background.done()

    async def look() -> None:
        job = await handles[0].ainfo()
        assert (job.state, job.failures, job.crashes) == (State.PENDING, 0, 0)
        assert not [worker for worker in await app.store.workers() if worker.alive]

    asyncio.run(main())
    asyncio.run(look())


def test_an_embedded_worker_leaves_the_programs_signals_alone(bed: Bed) -> None:
    app = bed.app()
    ours = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)

    async def main() -> None:
        before = [signal.getsignal(number) for number in ours]
        async with serving(app):
            assert [signal.getsignal(number) for number in ours] == before
        assert [signal.getsignal(number) for number in ours] == before

    asyncio.run(main())


def test_an_idle_worker_stops_at_once(bed: Bed) -> None:
    app = bed.app()

    async def main() -> None:
        worker, task = await begin(app, poll_interval="5m", shutdown_timeout="1h")
        worker.stop()
        asked = time.monotonic()
        await asyncio.wait_for(task, 60)
        assert time.monotonic() - asked < 30

    asyncio.run(main())


def test_a_worker_retires_its_lease_when_it_ends(bed: Bed) -> None:
    app = bed.app()

    async def main() -> None:
        async with serving(app) as worker:
            assert [each.info.id for each in await app.store.workers() if each.alive] == [worker.id]
        assert [each for each in await app.store.workers() if each.alive] == []

    asyncio.run(main())


def test_a_worker_says_that_it_drains(bed: Bed) -> None:
    app = bed.app()
    began, go = asyncio.Event(), asyncio.Event()

    @app.job
    async def work() -> None:
        began.set()
        await go.wait()

    async def draining() -> bool:
        return (await app.store.workers())[0].pulse.state == "draining"

    async def main() -> None:
        worker, task = await begin(app, lease="1s")
        await work.aenqueue()
        await began.wait()
        worker.stop()
        await until(draining)
        go.set()
        await asyncio.wait_for(task, 60)

    asyncio.run(main())
