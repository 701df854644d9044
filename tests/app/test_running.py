"""`async with app.running():` serves for the length of a block, and hides no error."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.app_on_store import PROMPT, QUICK, Bed, on_embedded_stores, until
from windlass import ConfigError, State, StoreRefused, Windlass
from windlass.core.workers import WorkerInfo

pytestmark = on_embedded_stores


async def serving(app: Windlass) -> list[WorkerInfo]:
    return [each.info for each in await app.store.workers() if each.alive]


def test_the_block_begins_with_a_worker_and_ends_without_one(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def double(number: int) -> int:
        return 2 * number

    async def main() -> None:
        async with app.running(name="inside", **QUICK) as worker:
            (here,) = await serving(app)
            assert (here.id, here.name) == (worker.id, "inside")
            handle = await double.aenqueue(21)
            assert await handle.aresult(timeout=PROMPT) == 42
            assert worker.processed == 1
        assert not await serving(app)

    asyncio.run(main())


def test_a_job_that_runs_at_the_end_of_the_block_is_finished(bed: Bed) -> None:
    app, begun, may_end = bed.app(), asyncio.Event(), asyncio.Event()

    @app.job
    async def slow() -> None:
        begun.set()
        await may_end.wait()

    async def main() -> None:
        async with app.running(**QUICK):
            handle = await slow.aenqueue()
            await asyncio.wait_for(begun.wait(), PROMPT)
            asyncio.get_running_loop().call_soon(may_end.set)
        assert await handle.astate() is State.COMPLETED

    asyncio.run(main())


def test_an_error_at_the_start_of_the_worker_is_raised_and_the_block_is_not_entered(
    bed: Bed,
) -> None:
    app, entered = bed.app(), False

    @app.on_start
    def refuse() -> None:
        raise LookupError("no licence")

    async def main() -> None:
        nonlocal entered
        async with app.running(**QUICK):
            entered = True

    with pytest.raises(LookupError, match="no licence"):
        asyncio.run(main())
    assert not entered


def test_a_wrong_flag_is_refused_as_by_every_worker(bed: Bed) -> None:
    app = bed.app()

    async def main() -> None:
        async with app.running(concurrency=0):
            pass

    with pytest.raises(ConfigError, match="concurrency"):
        asyncio.run(main())


def test_an_error_of_the_block_passes_through_and_the_worker_ends(bed: Bed) -> None:
    app = bed.app()

    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            async with app.running(**QUICK):
                raise ZeroDivisionError
        assert not await serving(app)

    asyncio.run(main())


def test_an_error_at_the_end_of_the_worker_is_raised(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = bed.app()

    async def main() -> None:
        async with app.running(**QUICK) as worker:
            run = worker.shutdown.run

            async def fail(parts: object) -> None:
                await run(parts)  # type: ignore[arg-type]
                raise LookupError("the end")

            monkeypatch.setattr(worker.shutdown, "run", fail)

    with pytest.raises(LookupError, match="the end"):
        asyncio.run(main())


def test_a_worker_that_the_block_stops_lets_the_block_go_on(bed: Bed) -> None:
    app = bed.app()

    async def nobody_serves() -> bool:
        return not await serving(app)

    async def main() -> None:
        async with app.running(**QUICK) as worker:
            worker.stop()
            await until(nobody_serves)

    asyncio.run(main())


def test_a_second_cancellation_gives_running_jobs_back_at_once(bed: Bed) -> None:
    app, begun = bed.app(), asyncio.Event()

    @app.job
    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    async def serve() -> None:
        async with app.running(poll_interval="20ms", shutdown_timeout="1h"):
            await asyncio.Event().wait()

    async def main() -> None:
        handle = await endless.aenqueue()
        task = asyncio.create_task(serve())
        await asyncio.wait_for(begun.wait(), PROMPT)
        while not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=0.05)
        assert task.cancelled()
        assert await handle.astate() is State.PENDING

    asyncio.run(asyncio.wait_for(main(), PROMPT))


def test_a_store_that_does_not_exist_is_raised(bed: Bed, tmp_path: Path) -> None:
    app = Windlass(f"sqlite:///{tmp_path}/missing/jobs.db")

    async def main() -> None:
        async with app.running():
            pass

    with pytest.raises(StoreRefused, match="missing"):
        asyncio.run(main())
