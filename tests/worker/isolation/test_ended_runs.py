"""Runs in children that end early: by timeout, cancellation, shutdown, lost lease or memory."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from tests.support.app_on_store import Bed, in_state, on_embedded_stores, serving, until
from tests.worker.isolation.children import is_alive, notes, pid_in
from windlass import State

on_sqlite = pytest.mark.parametrize("bed", ["sqlite"], indirect=True)
on_memory = pytest.mark.parametrize("bed", ["memory"], indirect=True)
SLOW = 30.0
"""Seconds within which a child has started and run a job, also on a busy machine."""


# -- stopped from outside ----------------------------------------------------------------------


@on_memory
@pytest.mark.parametrize("kind", ["overrun", "overrun_async"])
def test_a_handler_is_interrupted_at_its_timeout_and_may_clean_up(
    bed: Bed, nursery: Any, kind: str
) -> None:
    async def main() -> None:
        async with serving(nursery.app, isolated_processes=1):
            job = await in_state(await getattr(nursery, kind).aenqueue(), State.DEAD, within=SLOW)
            assert [attempt.outcome for attempt in job.history] == ["timed out"]
            assert str(job.error) == "TimeoutError: no result within 300ms"
        assert any(line.startswith("cleaned up") and "True" in line for line in notes(nursery))

    asyncio.run(main())


@on_memory
def test_after_its_grace_a_handler_is_killed_and_the_next_job_runs(bed: Bed, nursery: Any) -> None:
    async def main() -> None:
        async with serving(nursery.app, isolated_processes=1):
            job = await in_state(
                await nursery.ignore_everything.aenqueue(), State.DEAD, within=SLOW
            )
            assert [attempt.outcome for attempt in job.history] == ["timed out"]
            assert (job.failures, job.crashes) == (1, 0)
            assert "ignored" in notes(nursery)
            await until(lambda: not is_alive(pid_in(nursery)))
            assert (await (await nursery.where.aenqueue()).aresult("30s"))[0] != pid_in(nursery)

    asyncio.run(main())


@on_memory
def test_a_handler_that_finishes_within_its_grace_has_finished(bed: Bed, nursery: Any) -> None:
    async def main() -> None:
        async with serving(nursery.app, isolated_processes=1):
            handle = await nursery.finish_in_grace.aenqueue()
            assert await handle.aresult("30s") == "finished after all"

    asyncio.run(main())


@on_embedded_stores
def test_an_isolated_handler_that_cancels_itself_has_failed(bed: Bed, nursery: Any) -> None:
    """Prevents a job that runs again at once, for ever and uncharged."""

    async def main() -> None:
        async with serving(nursery.app):
            for place in ("handler", "step"):
                handle = await nursery.cancel_itself.aenqueue(place)
                job = await in_state(handle, State.DEAD, within=SLOW)
                assert (place, job.attempt, job.failures, job.crashes) == (place, 1, 1, 0)
                assert job.error is not None
                assert job.error.type == "asyncio.exceptions.CancelledError"

    asyncio.run(main())


@on_sqlite
@pytest.mark.parametrize(
    ("way", "why"),
    [
        ("stop", "ended because a job stopped its event loop"),
        ("callback", "exited with code 3"),
        ("cancel", "ended because a job stopped its event loop"),
    ],
)
def test_an_isolated_handler_that_ends_the_loop_has_crashed(
    bed: Bed, nursery: Any, way: str, why: str
) -> None:
    async def main() -> None:
        async with serving(nursery.app):
            handle = await nursery.end_the_loop.aenqueue(way)
            job = await in_state(handle, State.DEAD, within=SLOW)
        assert (job.failures, job.crashes) == (0, 3)
        assert job.reason == f"killed its process 3 times: its process {why}"

    asyncio.run(main())


@on_sqlite
def test_an_exit_in_a_task_of_an_isolated_handler_is_its_failure(bed: Bed, nursery: Any) -> None:
    async def main() -> None:
        async with serving(nursery.app):
            handle = await nursery.exit_in_a_task.aenqueue()
            job = await in_state(handle, State.DEAD, within=SLOW)
        assert (job.failures, job.crashes) == (1, 0)
        assert job.error is not None
        assert job.error.type == "SystemExit"

    asyncio.run(main())


@on_embedded_stores
def test_an_operator_cancels_an_isolated_job(bed: Bed, nursery: Any) -> None:
    async def main() -> None:
        async with serving(nursery.app, isolated_processes=1):
            handle = await nursery.wait.aenqueue()
            await until(lambda: notes(nursery), within=SLOW)
            await handle.acancel()
            job = await in_state(handle, State.CANCELLED)
            assert (job.failures, job.crashes) == (0, 0)
            await until(lambda: "cancelled True" in notes(nursery))

    asyncio.run(main())


@on_embedded_stores
def test_a_worker_that_stops_gives_isolated_jobs_back_and_leaves_no_child(
    bed: Bed, nursery: Any
) -> None:
    async def main() -> None:
        async with serving(nursery.app, isolated_processes=1, shutdown_timeout="100ms"):
            handle = await nursery.wait.aenqueue()
            await until(lambda: notes(nursery), within=SLOW)
        job = await handle.ainfo()
        assert (job.state, job.failures, job.crashes) == (State.PENDING, 0, 0)
        assert not is_alive(pid_in(nursery))

    asyncio.run(main())


@on_memory
@pytest.mark.parametrize("kind", ["hoard", "hoard_in_a_fork"])
def test_a_job_that_takes_more_memory_than_it_may_is_killed_and_fails(
    bed: Bed, nursery: Any, kind: str
) -> None:
    async def main() -> None:
        async with serving(nursery.app, isolated_processes=1):
            job = await in_state(await getattr(nursery, kind).aenqueue(), State.DEAD, within=SLOW)
            assert (job.failures, job.crashes) == (1, 0)
            assert job.error is not None
            assert job.error.type == "windlass.MemoryExceeded"
            assert "the limit is 150MB" in job.error.message

    asyncio.run(main())


@on_memory
def test_memory_that_forks_share_is_counted_once(bed: Bed, nursery: Any) -> None:
    async def main() -> None:
        async with serving(nursery.app, isolated_processes=1):
            assert await (await nursery.share_with_forks.aenqueue()).aresult("30s") == "kept"

    asyncio.run(main())


@on_memory
def test_a_job_does_not_pay_for_the_memory_that_others_left(bed: Bed, nursery: Any) -> None:
    async def main() -> None:
        async with serving(nursery.app, isolated_processes=1):
            pids = {await (await nursery.keep.aenqueue()).aresult("30s") for _ in range(3)}
            assert len(pids) == 3

    asyncio.run(main())


@on_memory
def test_where_memory_cannot_be_seen_the_child_limits_itself(
    bed: Bed, nursery: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.worker.isolation.child_pool.IS_VISIBLE", False)

    async def main() -> None:
        async with serving(nursery.app, isolated_processes=1):
            job = await in_state(await nursery.hoard.aenqueue(), State.DEAD, within=SLOW)
            assert job.error is not None
            assert job.error.type == "MemoryError"
            assert (await (await nursery.where.aenqueue()).aresult("30s"))[1] == os.getpid()

    asyncio.run(main())


@on_memory
def test_children_that_are_idle_are_ended_down_to_one(
    bed: Bed, nursery: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.worker.isolation.child_pool._IDLE_SECONDS", 0.2)

    async def main() -> None:
        async with serving(nursery.app, isolated_processes=2) as worker:
            handles = [await nursery.wait.aenqueue() for _ in range(2)]
            await until(lambda: len(notes(nursery)) == 2, within=SLOW)
            (nursery.HERE / "gate").touch()
            for handle in handles:
                await handle.aresult("30s")
            pids = [int(line.split()[1]) for line in notes(nursery)]
            await until(lambda: sum(map(is_alive, pids)) == 1)
            await asyncio.sleep(0.3)
            assert len(worker._setup.child_pool.living) == 1

    asyncio.run(main())


@on_memory
def test_a_lost_lease_ends_the_run_in_the_child(bed: Bed, nursery: Any) -> None:
    async def main() -> None:
        async with serving(nursery.app, isolated_processes=1) as worker:
            await nursery.wait.aenqueue()
            await until(lambda: notes(nursery), within=SLOW)
            worker._parts.lease.lose()
            await until(lambda: "cancelled True" in notes(nursery))
            (nursery.HERE / "gate").touch()

    asyncio.run(main())
