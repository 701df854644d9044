"""Steps and undos in child processes: recorded by the worker, which outlives them.

The handlers are in steps_in_children.py, of which each test gets a copy that children can import.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from tests.support.app_on_store import Bed, Through, in_state, serving, until
from windlass import State
from windlass.core.jobs.job import Checkpoint, Saga
from windlass.core.metrics.families import EVENTS

on_shared_stores = pytest.mark.parametrize("bed", ["sqlite", "postgres"], indirect=True)
on_sqlite = pytest.mark.parametrize("bed", ["sqlite"], indirect=True)
SLOW = 30.0


@pytest.fixture
def stairs(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module of handlers of the test's own, which children can import as well."""
    name = f"stairs_{uuid4().hex}"
    text = (Path(__file__).parent / "isolated_steps_program.py").read_text()
    (bed.directory / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(bed.directory)
    module = importlib.import_module(name)
    module.app.configure(url=bed.url)
    bed._made.append(module.app)
    yield module
    del sys.modules[name]


def notes(stairs: Any) -> list[str]:
    return stairs.NOTES.read_text().splitlines() if stairs.NOTES.exists() else []


@on_shared_stores
def test_steps_and_sleeps_in_a_child_are_recorded(bed: Bed, stairs: Any) -> None:
    async def main() -> None:
        async with serving(stairs.app, isolated_processes=1):
            for handler in (stairs.blocking, stairs.awaiting):
                assert await (await handler.aenqueue()).aresult("30s") == "FIRSTSECOND"

    asyncio.run(main())
    assert notes(stairs) == 2 * ["do first", "do second"]


@on_sqlite
def test_a_wait_in_a_child_is_counted_as_parked(bed: Bed, stairs: Any) -> None:
    async def main() -> None:
        async with serving(stairs.app, isolated_processes=1) as worker:
            handle = await stairs.parking.aenqueue()
            await in_state(handle, State.SCHEDULED, within=SLOW)
            await stairs.app.asend_event("paid", 7)
            assert await handle.aresult("30s") == 7
            (tallies,) = worker._setup.meters.tallies
            await until(lambda: tallies.events[EVENTS.index("completed")])
            assert tallies.events[EVENTS.index("parked")] == 1

    asyncio.run(main())


@on_sqlite
def test_steps_of_a_child_process_are_undone_in_a_child_process(bed: Bed, stairs: Any) -> None:
    async def main() -> None:
        async with serving(stairs.app, isolated_processes=1):
            job = await in_state(await stairs.failing.aenqueue(), State.DEAD, within=SLOW)
        assert (job.saga, job.reason) == (Saga.OVER, "permanent error; undone: flight, hotel")

    asyncio.run(main())
    done = ["do hotel", "do flight"]
    assert notes(stairs) == [*done, "undo flight FLIGHT True", "undo hotel HOTEL True"]


@on_sqlite
def test_a_job_that_kills_its_child_too_often_is_undone(bed: Bed, stairs: Any) -> None:
    async def main() -> None:
        async with serving(stairs.app, isolated_processes=1):
            job = await in_state(await stairs.dying.aenqueue(), State.DEAD, within=SLOW)
        assert job.reason is not None
        assert job.reason.startswith("killed its process 3 times")
        assert job.reason.endswith("; undone: hotel")
        assert (job.saga, job.crashes) == (Saga.OVER, 3)

    asyncio.run(main())
    assert notes(stairs) == ["do hotel", "undo hotel HOTEL True"]


@on_sqlite
def test_a_job_in_a_child_whose_time_is_up_is_undone(bed: Bed, stairs: Any) -> None:
    async def main() -> None:
        async with serving(stairs.app, isolated_processes=1):
            job = await in_state(await stairs.late.aenqueue(), State.DEAD, within=SLOW)
        assert job.reason == "gave up after 1 failure; undone: hotel"

    asyncio.run(main())
    assert notes(stairs) == ["do hotel", "undo hotel HOTEL True"]


@on_sqlite
def test_a_step_in_a_child_is_refused_with_the_remedy(bed: Bed, stairs: Any) -> None:
    async def main() -> None:
        async with serving(stairs.app, isolated_processes=1):
            job = await in_state(await stairs.changing.aenqueue(), State.DEAD, within=SLOW)
        assert "two steps of one run are named" in str(job.error)

    asyncio.run(main())
    assert notes(stairs) == ["do once"]


@on_sqlite
def test_a_step_in_a_child_whose_fence_is_lost_ends_its_run(bed: Bed, stairs: Any) -> None:
    robbed: list[int] = []

    class Robbed(Through):
        async def checkpoint(self, checkpoints: list[Checkpoint]) -> list[bool]:
            if not robbed:
                checkpoints = [replace(each, token=1) for each in checkpoints]
            robbed.append(1)
            answer: list[bool] = await self.inner.checkpoint(checkpoints)
            return answer

    stairs.app.store = Robbed(stairs.app.store)

    async def main() -> None:
        async with serving(stairs.app, isolated_processes=1):
            handle = await stairs.awaiting.aenqueue()
            assert await handle.aresult("30s") == "FIRSTSECOND"
            job = await handle.ainfo()
        assert (job.failures, job.history[0].outcome) == (0, "released")

    asyncio.run(main())
    assert notes(stairs) == ["do first", "do first", "do second"]


@on_shared_stores
@pytest.mark.parametrize("name", ["streaming", "streaming_async"])
def test_chunks_of_a_child_are_streamed_once_and_in_order(bed: Bed, stairs: Any, name: str) -> None:
    """Those from before a recorded step survive the child, and are not streamed again."""

    async def main() -> list[Any]:
        async with serving(stairs.app, isolated_processes=1):
            handle = await getattr(stairs, name).aenqueue()
            assert await handle.aresult("60s") == "done"
            return [chunk async for chunk in handle.astream(timeout="30s")]

    *numbers, inside, last = asyncio.run(main())
    assert (numbers, inside, last) == (list(range(1_000)), "in a step", "attempt 2")


@on_sqlite
def test_a_child_whose_lease_is_lost_streams_nothing_more(bed: Bed, stairs: Any) -> None:
    class Lost(Through):
        appends = 0

        async def stream_append(self, groups: Any) -> Any:
            self.appends += 1
            if self.appends == 1:
                return [None for _ in groups]
            return await self.inner.stream_append(groups)

    stairs.app.store = lost = Lost(stairs.app.store)

    async def main() -> list[Any]:
        async with serving(stairs.app, isolated_processes=1) as worker:
            handle = await stairs.streaming.aenqueue()
            assert await handle.aresult("60s") == "done"
            assert worker._state.fenced >= 1
            return [chunk async for chunk in handle.astream(timeout="30s")]

    assert asyncio.run(main())[:3] == [0, 1, 2]
    assert lost.appends > 1
