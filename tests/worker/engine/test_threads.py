"""A worker's pool has a fixed size, is made at start, is gone at the end, and hoards nothing."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import pytest

from tests.support.app_on_store import Bed, Clock, in_state, our_threads, serving, until
from windlass import CallNext, Context, State
from windlass.worker.engine.threads import Threads

GRACE = timedelta(seconds=1)


def test_threads_are_made_at_start_and_gone_after_the_end(bed: Bed) -> None:
    app = bed.app()
    before = threading.enumerate()

    @app.job
    def work(n: int) -> int:
        return n

    def ours() -> list[str]:
        return our_threads(besides=before)

    async def main() -> None:
        async with serving(app, threads=3):
            made = [name for name in ours() if name.startswith("windlass-handler")]
            assert len(made) == 3
            assert "windlass-heart" in ours()
            handles = [await work.aenqueue(n) for n in range(20)]
            assert [await handle.aresult("60s") for handle in handles] == list(range(20))
            assert len([name for name in ours() if name.startswith("windlass-handler")]) == 3
        await until(lambda: not [name for name in ours() if "handler" in name or "heart" in name])
        await app.aclose()
        await until(lambda: ours() == [])
        assert len(asyncio.all_tasks()) == 1, "a task was left behind"

    asyncio.run(main())


def test_a_worker_can_be_run_again_and_again(bed: Bed) -> None:
    app = bed.app()
    before = threading.enumerate()

    @app.job
    async def work() -> int:
        return 1

    async def main() -> None:
        for _ in range(3):
            async with serving(app):
                assert await (await work.aenqueue()).aresult("60s") == 1
        await app.aclose()

    asyncio.run(main())
    asyncio.run(until(lambda: our_threads(besides=before) == []))


def test_never_more_runs_than_slots(bed: Bed) -> None:
    app = bed.app()
    now = most = 0
    go = asyncio.Event()

    @app.job
    async def work() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await go.wait()
        now -= 1

    async def main() -> None:
        handles = await app.aenqueue_many(work.draft() for _ in range(20))
        async with serving(app, concurrency=4, claim_size=3):
            await until(lambda: now == 4)
            states = [await handle.astate() for handle in handles]
            assert states.count(State.RUNNING) == 4, "no more is claimed than runs"
            assert states.count(State.PENDING) == 16
            go.set()
            for handle in handles:
                await handle.aresult("60s")

    asyncio.run(main())
    assert most == 4


def test_sync_jobs_beyond_the_threads_stay_pending_and_stand_in_nobodys_way(bed: Bed) -> None:
    app = bed.app()
    go, lock = threading.Event(), threading.Lock()
    now = most = 0

    @app.job
    def slow() -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        go.wait(60)
        with lock:
            now -= 1

    @app.job
    async def quick() -> int:
        return 1

    async def main() -> None:
        handles = await app.aenqueue_many(slow.draft() for _ in range(10))
        async with serving(app, concurrency=50, threads=2):
            await until(lambda: now == 2)
            assert await (await quick.aenqueue()).aresult("60s") == 1
            states = [await handle.astate() for handle in handles]
            assert (states.count(State.RUNNING), states.count(State.PENDING)) == (2, 8)
            go.set()
            for handle in handles:
                await handle.aresult("60s")

    asyncio.run(main())
    assert most == 2


def test_a_busy_worker_leaves_the_rest_to_an_idle_one(bed: Bed) -> None:
    store = bed.store()
    busy, idle = bed.app(store=store), bed.app(store=store)
    go, ran = asyncio.Event(), asyncio.Event()

    @busy.job(name="work")
    async def hold() -> str:
        ran.set()
        await go.wait()
        return "busy"

    @idle.job(name="work")
    async def work() -> str:
        return "idle"

    async def main() -> None:
        async with serving(busy, concurrency=1):
            first, second = await hold.aenqueue(), await hold.aenqueue()
            await ran.wait()
            async with serving(idle):
                assert await second.aresult("60s") == "idle"
            go.set()
            assert await first.aresult("60s") == "busy"

    asyncio.run(main())


def test_more_urgent_jobs_go_first_and_equals_in_their_order(bed: Bed) -> None:
    app = bed.app()
    order: list[str] = []

    @app.job
    async def note(name: str) -> None:
        order.append(name)

    async def main() -> None:
        for name, priority in (("a", 0), ("low", -5), ("b", 0), ("high", 10), ("top", 1000)):
            await note.using(priority=priority).aenqueue(name)
        async with serving(app, concurrency=1):
            await until(lambda: len(order) == 5)

    asyncio.run(main())
    assert order == ["top", "high", "a", "b", "low"]


def test_waiting_makes_up_for_priority(bed: Bed) -> None:
    clock = Clock()
    app = bed.app(store=bed.store(clock=clock))
    order: list[str] = []

    @app.job
    async def note(name: str) -> None:
        order.append(name)

    async def main() -> None:
        await note.aenqueue("old")
        clock.advance(minutes=2)
        await note.using(priority=1).aenqueue("a step more urgent")
        await note.using(priority=3).aenqueue("three steps more urgent")
        async with serving(app, concurrency=1, lease="1h"):
            await until(lambda: len(order) == 3)

    asyncio.run(main())
    assert order == ["three steps more urgent", "old", "a step more urgent"]


def test_a_worker_serves_only_its_queues(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def work() -> int:
        return 1

    async def main() -> None:
        other = await work.using(queue="other").aenqueue()
        async with serving(app, queues=["mail", "post"]):
            assert await (await work.using(queue="mail").aenqueue()).aresult("60s") == 1
            assert await (await work.using(queue="post").aenqueue()).aresult("60s") == 1
            assert await other.astate() is State.PENDING

    asyncio.run(main())


def test_a_worker_tells_the_store_what_it_is_and_how_it_fares(bed: Bed) -> None:
    app = bed.app()

    @app.job(aliases=["old"])
    async def work() -> None: ...

    async def main() -> None:
        async with serving(
            app, name="anna", concurrency=7, queues=["default"], lease="1s"
        ) as worker:
            for _ in range(3):
                await (await work.aenqueue()).aresult("60s")
            await until(lambda: beaten(3))
            (record,) = await app.store.workers()
            assert record.alive
            assert (record.info.id, record.info.name, record.info.slots) == (worker.id, "anna", 7)
            assert record.info.kinds == ("old", "windlass.flow", "windlass.pipeline", "work")
            assert record.info.queues == ("default",)
            assert record.last_seen > record.started_at
            assert worker.processed == 3
        (record,) = await app.store.workers()
        assert not record.alive

    async def beaten(processed: int) -> bool:
        return (await app.store.workers())[0].pulse.processed == processed

    asyncio.run(main())


def test_an_idle_worker_is_woken_by_an_enqueue_long_before_its_poll(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def work() -> int:
        return 1

    async def main() -> None:
        async with serving(app, poll_interval="5m"):
            for _ in range(3):
                assert await (await work.aenqueue()).aresult("60s") == 1

    asyncio.run(main())


def test_an_idle_worker_wakes_up_when_a_job_is_due_long_before_its_poll(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def work() -> int:
        return 1

    async def main() -> None:
        async with serving(app, poll_interval="5m"):
            assert await (await work.using(delay="100ms").aenqueue()).aresult("60s") == 1

    asyncio.run(main())


@pytest.mark.parametrize("count", [1, 500])
def test_every_job_is_run_once(bed: Bed, count: int) -> None:
    app = bed.app()
    ran: list[int] = []

    @app.job
    async def work(n: int) -> None:
        ran.append(n)

    async def main() -> None:
        handles = await app.aenqueue_many(work.draft(n) for n in range(count))
        async with serving(app, concurrency=20):
            for handle in handles:
                await in_state(handle, State.COMPLETED)

    asyncio.run(main())
    assert sorted(ran) == list(range(count))


def test_sync_jobs_that_wait_in_middleware_take_their_threads_too(bed: Bed) -> None:
    """Prevents: more claimed than can run, and charged a timeout for standing in line."""

    now = most = 0

    async def ponder(_: Context, call_next: CallNext) -> object:
        nonlocal now, most
        now += 1
        most = max(most, now)
        try:
            await asyncio.sleep(0.05)
            return await call_next()
        finally:
            now -= 1

    app = bed.app(middleware=[ponder])

    @app.job
    def work() -> None: ...

    async def main() -> None:
        handles = await app.aenqueue_many(work.draft() for _ in range(8))
        async with serving(app, concurrency=50, threads=1):
            for handle in handles:
                await handle.aresult("60s")

    asyncio.run(main())
    assert most == 1


def test_a_call_that_was_given_up_before_it_began_is_never_made() -> None:
    """Prevents: a handler that runs after its job was settled without it."""

    async def main() -> None:
        threads = Threads(1)
        threads.start()
        go, calls = threading.Event(), []
        first = asyncio.create_task(threads.run(lambda: go.wait(60), GRACE))
        await asyncio.sleep(0)
        second = asyncio.create_task(threads.run(lambda: calls.append(2), GRACE))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait({second})
        go.set()
        assert await first
        assert await threads.run(lambda: 3, GRACE) == 3
        assert (calls, threads.lost) == ([], 0)
        threads.stop()

    asyncio.run(main())
