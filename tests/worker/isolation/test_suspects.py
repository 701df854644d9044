"""A job whose process died runs alone in a child until it is cleared."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from typing import Any

import pytest

from tests.support.app_on_store import Bed, in_state, log_lines, on_embedded_stores, serving, until
from tests.worker.isolation.children import pid_in
from tests.worker.services.test_rescuer import register
from windlass import State, Windlass
from windlass.core.claims.lanes import Ask, Claim
from windlass.core.jobs.job import Job, Lane
from windlass.core.jobs.outcomes import Crashed, Snoozed
from windlass.core.jobs.retry import Retry
from windlass.core.jobs.settle import Policy, settle

on_sqlite = pytest.mark.parametrize("bed", ["sqlite"], indirect=True)
on_memory = pytest.mark.parametrize("bed", ["memory"], indirect=True)
SLOW = 30.0
"""Seconds within which a child has started and run a job, also on a busy machine."""


# -- children that die -------------------------------------------------------------------------


@on_sqlite
@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("segfault", "its process died of SIGSEGV"),
        ("exit", "its process exited with code 3"),
        ("SIGKILL", "its process died of SIGKILL"),
    ],
)
def test_a_job_whose_child_dies_is_charged_with_its_last_words(
    bed: Bed, nursery: Any, how: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with serving(nursery.app, isolated_processes=1):
            job = await in_state(await nursery.die.aenqueue(how), State.DEAD, within=SLOW)
            assert (job.failures, job.crashes, job.attempt) == (0, 3, 3)
            assert [attempt.outcome for attempt in job.history] == ["crashed"] * 3
            assert job.error is not None
            assert job.error.message.startswith(reason)
            assert f"the last line of {how}" in job.error.traceback
            assert ("ctypes.string_at" in job.error.traceback) is False
            assert ("Segmentation fault" in job.error.traceback) is (how == "segfault")
            assert (await (await nursery.where.aenqueue()).aresult("30s"))[1] == os.getpid()

    asyncio.run(main())
    assert [len(log_lines(caplog, f"job.{what}")) for what in ("crashed", "dead")] == [2, 1]
    assert log_lines(caplog, "job.released") == []


async def suspect(app: Windlass, kind: str, count: int = 1) -> None:
    """Let jobs have been in a process that died."""
    await register(app.store, "gone")
    ask = Ask(lane=Lane("default", kind), count=count)
    jobs = await app.store.claim(Claim(asks=(ask,)), worker="gone", token=7)
    assert len(jobs) == count
    died = Crashed(cause="process", reason="its process died of SIGSEGV")
    policy = Policy(retry=Retry())
    moves = [settle(job, died, policy, now=job.due_at, jitter=0) for job in jobs]
    await app.store.settle(moves)


@on_embedded_stores
def test_a_suspect_runs_in_a_child_and_is_cleared_if_that_lives(bed: Bed, nursery: Any) -> None:
    async def main() -> None:
        handle = await nursery.ordinary.aenqueue()
        await suspect(nursery.app, "ordinary")
        async with serving(nursery.app, isolated_processes=1):
            assert await handle.aresult("30s") != os.getpid()
            assert (await handle.ainfo()).crashes == 0
            assert await (await nursery.ordinary.aenqueue()).aresult("30s") == os.getpid()

    asyncio.run(main())


@on_sqlite
def test_a_suspect_that_is_guilty_kills_children_and_no_worker(bed: Bed, nursery: Any) -> None:
    async def main() -> None:
        handle = await nursery.ordinary.aenqueue("segfault")
        await suspect(nursery.app, "ordinary")
        async with serving(nursery.app, isolated_processes=1):
            job = await in_state(handle, State.DEAD, within=SLOW)
            assert job.crashes == 3
            assert [each.outcome for each in job.history] == ["suspected", *["crashed"] * 3]

    asyncio.run(main())


@on_memory
def test_suspects_beyond_the_free_children_wait_uncharged(bed: Bed, nursery: Any) -> None:
    async def main() -> None:
        suspects = [await nursery.ordinary.aenqueue() for _ in range(2)]
        await suspect(nursery.app, "ordinary", 2)
        async with serving(nursery.app, isolated_processes=1):
            for handle in suspects:
                assert await handle.aresult("30s") != os.getpid()
        jobs = [await handle.ainfo() for handle in suspects]
        assert [[attempt.outcome for attempt in job.history] for job in jobs] == [["suspected"]] * 2
        assert min(job.attempt for job in jobs) == 2
        assert max(job.attempt for job in jobs) > 2, "who found no child was snoozed"
        assert [(job.failures, job.crashes) for job in jobs] == [(0, 0)] * 2

    asyncio.run(main())


@on_memory
def test_a_suspect_that_waits_for_a_child_is_tried_when_there_is_one(
    bed: Bed, nursery: Any
) -> None:
    """Prevents one that runs for hours from costing others anything but the wait."""

    async def main() -> None:
        busy = await nursery.wait.using(priority=10).aenqueue()
        suspected = await nursery.ordinary.aenqueue()
        await suspect(nursery.app, "ordinary")
        async with serving(nursery.app, isolated_processes=1):
            await until(lambda: pid_in(nursery), within=SLOW)
            job = await in_state(suspected, State.SCHEDULED)
            assert job.reason == "no child process was free"
            assert job.waiting_for == "alone", "so that it keeps its place"
            assert [each.outcome for each in job.history] == ["suspected"]
            assert (job.failures, job.crashes) == (0, 0)
            (nursery.HERE / "gate").touch()
            await busy.aresult("30s")
            assert await suspected.aresult("30s") != os.getpid()

    asyncio.run(main())


def test_suspects_that_are_put_off_keep_their_place(bed: Bed, nursery: Any) -> None:
    """Prevents: innocent jobs of a process that died, which run after the whole backlog."""

    async def main() -> None:
        suspects = [await nursery.ordinary.aenqueue() for _ in range(4)]
        await suspect(nursery.app, "ordinary", 4)
        places = [(await handle.ainfo()).due_at for handle in suspects]
        later = await nursery.ordinary.aenqueue()
        async with serving(nursery.app, isolated_processes=1, concurrency=4):
            for handle in suspects:
                await handle.aresult("30s")
            await later.aresult("30s")
        jobs = [await handle.ainfo() for handle in suspects]
        assert [job.due_at for job in jobs] == places
        assert max(job.attempt for job in jobs) > 2, "who found no child was snoozed"

    asyncio.run(main())


def test_a_suspect_that_was_put_off_by_a_worker_that_is_gone_is_tried_by_another(
    bed: Bed, nursery: Any
) -> None:
    async def main() -> None:
        handle = await nursery.ordinary.aenqueue()
        await suspect(nursery.app, "ordinary")
        await register(nursery.app.store, "gone too")
        claim = Claim(asks=(Ask(lane=Lane("default", "ordinary"), count=1),))
        (job,) = await nursery.app.store.claim(claim, worker="gone too", token=8)
        put_off = Snoozed(due=timedelta(seconds=1), begun=False, in_place=True)
        move = settle(job, put_off, Policy(retry=Retry()), now=job.due_at, jitter=0)
        assert await nursery.app.store.settle([move]) == [True]
        assert (await handle.ainfo()).state is State.SCHEDULED
        async with serving(nursery.app, isolated_processes=1):
            assert await handle.aresult("30s") != os.getpid()

    asyncio.run(main())


@on_memory
def test_a_suspect_that_no_child_can_run_runs_all_the_same(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def local() -> int:
        return os.getpid()

    async def main() -> Job:
        handle = await local.aenqueue()
        await suspect(app, "local")
        async with serving(app):
            assert await handle.aresult("30s") == os.getpid()
        return await handle.ainfo()

    assert asyncio.run(main()).state is State.COMPLETED
