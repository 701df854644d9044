"""Provided values are open from before the first hook until after the last, whatever fails."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.handlers.provided.pools import Pool, with_pool
from tests.support.app_on_store import Bed, Through, log_lines, on_embedded_stores, serving
from windlass import Inject, ProviderError, State, StoreUnavailable
from windlass.core.workers import WorkerInfo

pytestmark = on_embedded_stores


class Cache:
    """A provided value that needs another."""

    def __init__(self, pool: Pool) -> None:
        self.name = f"cache on {pool.name}"


def test_provided_values_are_open_from_before_the_first_hook_until_after_the_last(bed: Bed) -> None:
    heard: list[str] = []
    app = with_pool(bed.app(), heard)

    @app.provide
    def cache(pool: Pool = Inject) -> Iterator[Cache]:
        heard.append("open cache")
        yield Cache(pool)
        heard.append("close cache")

    app.on_start(lambda: heard.append("start"))
    app.on_shutdown(lambda: heard.append("shutdown"))
    began = asyncio.Event()

    @app.job
    async def work(cache: Cache = Inject) -> str:
        began.set()
        await asyncio.sleep(0.05)
        heard.append("work")
        return cache.name

    async def main() -> None:
        async with serving(app):
            handle = await work.aenqueue()
            await began.wait()
        assert await handle.astate() is State.COMPLETED  # It was drained.

    asyncio.run(main())
    assert heard == [
        "open", "open cache", "start", "work", "shutdown", "close cache", "close",
    ]  # fmt: skip


def test_provided_values_are_opened_once_for_all_jobs(bed: Bed) -> None:
    heard: list[str] = []
    app = with_pool(bed.app(), heard)
    given: list[Pool] = []

    @app.job
    async def work(db: Pool = Inject) -> None:
        given.append(db)

    async def main() -> None:
        async with serving(app):
            for _ in range(3):
                await (await work.aenqueue()).aresult("60s")

    asyncio.run(main())
    assert heard == ["open", "close"]
    assert len(given) == 3
    assert len(set(map(id, given))) == 1


def test_a_provided_value_that_cannot_be_opened_keeps_the_worker_from_starting(bed: Bed) -> None:
    heard: list[str] = []
    app = with_pool(bed.app(), heard)
    app.on_start(lambda: heard.append("start"))
    app.on_shutdown(lambda: heard.append("shutdown"))

    @app.provide
    async def cache() -> Cache:
        raise OSError("no route")

    async def main() -> None:
        with pytest.raises(ProviderError, match="'cache' could not be opened: OSError: no route"):
            await app.arun_worker()
        assert await app.store.workers() == []
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())
    assert heard == ["open", "close"]


def test_a_failing_start_hook_closes_what_was_opened(bed: Bed) -> None:
    heard: list[str] = []
    app = with_pool(bed.app(), heard)

    @app.on_start
    async def refuse() -> None:
        raise RuntimeError("no licence")

    app.on_shutdown(lambda: heard.append("shutdown"))

    async def main() -> None:
        with pytest.raises(RuntimeError, match="no licence"):
            await app.arun_worker()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())
    assert heard == ["open", "close"]


class Unreachable(Through):
    """A store that cannot be opened."""

    async def open(self) -> None:
        raise StoreUnavailable("nobody there")


def test_before_there_is_a_store_nothing_is_opened(bed: Bed) -> None:
    """What an app opens is often in the same place, and would fail while the worker waits."""
    heard: list[str] = []
    app = with_pool(bed.app(store=Unreachable(bed.store())), heard)
    app.on_start(lambda: heard.append("start"))
    app.on_shutdown(lambda: heard.append("shutdown"))

    async def main() -> None:
        with pytest.raises(StoreUnavailable):
            await app.arun_worker()

    asyncio.run(main())
    assert heard == []


class LostAtOnce(Through):
    """A store that is gone when a worker registers."""

    async def register(self, worker: WorkerInfo) -> None:
        raise StoreUnavailable("nobody there")


def test_a_store_that_takes_no_worker_undoes_the_start(bed: Bed) -> None:
    """Prevents: what on_start opened is never closed, since on_shutdown is not called."""
    heard: list[str] = []
    app = with_pool(bed.app(store=LostAtOnce(bed.store())), heard)
    app.on_start(lambda: heard.append("start"))
    app.on_shutdown(lambda: heard.append("shutdown"))

    async def main() -> None:
        with pytest.raises(StoreUnavailable):
            await app.arun_worker()

    asyncio.run(main())
    assert heard == ["open", "start", "shutdown", "close"]


def test_a_close_that_fails_does_not_keep_the_worker_from_ending(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []
    app = with_pool(bed.app(), heard)

    @app.provide
    def cache(pool: Pool = Inject) -> Iterator[Cache]:
        yield Cache(pool)
        raise ValueError("gone")

    @app.on_shutdown
    def broken() -> None:
        raise ValueError("no")

    async def main() -> None:
        async with serving(app):
            pass
        assert not [worker for worker in await app.store.workers() if worker.alive]

    asyncio.run(main())
    assert heard == ["open", "close"]
    assert [line["provider"] for line in log_lines(caplog, "provider.not_closed")] == ["cache"]
    (line,) = log_lines(caplog, "shutdown.incomplete")
    assert line["error"] == "ValueError: no"
    assert line["hook"].endswith("broken")


def test_a_program_that_just_ends_closes_provided_values_after_the_drain(bed: Bed) -> None:
    """Prevents: `asyncio.run` cancels the value first, and a job that drains finds it closed."""
    heard: list[str] = []
    app = with_pool(bed.app(), heard)
    began = asyncio.Event()

    @app.job
    async def work(db: Pool = Inject) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            heard.append(f"cleaned up, pool open: {db.open}")

    async def main() -> None:
        task = asyncio.create_task(app.arun_worker(poll_interval="20ms", shutdown_timeout="100ms"))
        await work.aenqueue()
        await began.wait()
        assert not task.done()

    asyncio.run(main())
    assert heard == ["open", "cleaned up, pool open: True", "close"]


def test_provided_values_can_be_opened_without_a_worker(bed: Bed) -> None:
    heard: list[str] = []
    app = with_pool(bed.app(), heard)

    async def main() -> None:
        async with app.open_provided() as provided:
            assert provided[Pool].open

    asyncio.run(main())
    assert heard == ["open", "close"]
