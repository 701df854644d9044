"""A worker with `concurrency=2..40` has as many as its load wants, and says why."""

from __future__ import annotations

import asyncio
import logging
import math
import threading

import pytest

from tests.support.app_on_store import Bed, log_lines, on_embedded_stores, serving, until
from windlass.core import autoscale
from windlass.core.autoscale import LAG_HIGH, Pauses
from windlass.core.workers import WorkerPulse
from windlass.worker import Worker, assembly
from windlass.worker.policies.slot_scaler import Demand

BRISK = Pauses(look=0.02, rise=0.05, relief=0.1, fall=0.3, forget=0.3)
"""As in a worker, but sooner."""


@pytest.fixture
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "SLOTS_PAUSES", BRISK)


@pytest.fixture
def never_late(brisk: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """No lag counts: on a machine that does much else, the event loop is late by itself."""
    monkeypatch.setattr(autoscale, "LAG_LOW", math.inf)
    monkeypatch.setattr(autoscale, "LAG_HIGH", math.inf)


@pytest.mark.usefixtures("never_late")
def test_slots_grow_with_a_burst_and_shrink_after_it(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "windlass.scaler")
    app = bed.app()
    now = most = ended = 0

    @app.job
    async def nap() -> None:
        nonlocal now, most, ended
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.05)
        now -= 1
        ended += 1

    async def main() -> None:
        await app.aenqueue_many(nap.draft() for _ in range(600))
        async with serving(app, concurrency="2..40", lease="1s") as worker:
            await until(lambda: ended == 600, within=30)
            await until(lambda: worker._state.slots == 2)
            await until(lambda: shown(2))
            # It has not become deaf on its way down.
            await (await nap.aenqueue()).aresult("60s")

    async def shown(slots: int) -> bool:
        (record,) = await app.store.workers()
        assert (record.info.slots, record.info.least_slots) == (40, 2)
        return record.pulse.slots == slots

    asyncio.run(main())
    assert 5 <= most <= 40, "two slots would have run two at once"
    steps = log_lines(caplog, "slots.scaled")
    up = [step for step in steps if step["to"] > step["from"]]
    down = [step for step in steps if step["to"] < step["from"]]
    assert (up[0]["from"], up[0]["reason"]) == (2, "jobs are waiting and all 2 slots are in use")
    # Not the first one: on a machine that does much else, the event loop may have been late.
    assert down[-1]["to"] == 2
    assert "slots were in use" in down[-1]["reason"] or "no job ran" in down[-1]["reason"]
    measured = {"waiting", "most_running", "service_time", "throughput", "loop_lag", "cpu"}
    assert all(measured | {"bounds"} <= step.keys() for step in steps)


@pytest.mark.usefixtures("never_late")
def test_slots_grow_although_no_job_ends_and_never_more_run_than_there_are(bed: Bed) -> None:
    """Prevents: a worker that is full looks for work only when a job ends, and that takes hours."""
    app = bed.app()
    go = asyncio.Event()
    now = beyond = 0
    workers: list[Worker] = []

    @app.job
    async def hold() -> None:
        nonlocal now, beyond
        now += 1
        beyond = max(beyond, now - workers[0]._state.slots)
        await go.wait()
        now -= 1

    async def main() -> None:
        async with serving(app, concurrency="2..8") as worker:
            workers.append(worker)
            await app.aenqueue_many(hold.draft() for _ in range(20))
            await until(lambda: now == 8)
            go.set()
            await until(lambda: worker.processed == 20)

    asyncio.run(main())
    assert beyond == 0


@pytest.mark.usefixtures("never_late")
@on_embedded_stores
def test_handlers_that_block_the_loop_get_fewer_slots(
    bed: Bed, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that blocks runs alone whatever the slots are; more would only be held from others."""
    caplog.set_level(logging.INFO, "windlass.scaler")
    app = bed.app()
    released, block = asyncio.Event(), threading.Event()

    @app.job
    async def work() -> None:
        if released.is_set():
            block.wait(0.3)
        else:
            await released.wait()

    async def main() -> None:
        await app.aenqueue_many(work.draft() for _ in range(900))
        async with serving(app, concurrency="2..20", shutdown_timeout="1s") as worker:
            await until(lambda: worker._state.slots == 20, within=60)
            monkeypatch.setattr(autoscale, "LAG_HIGH", LAG_HIGH)
            released.set()
            await until(lambda: worker._state.slots == 2, within=60)
            block.set()

    asyncio.run(main())
    assert any(
        "the event loop is late" in each["reason"] for each in log_lines(caplog, "slots.scaled")
    )


@on_embedded_stores
def test_a_fixed_number_of_slots_is_not_monitored(bed: Bed) -> None:
    app = bed.app()

    async def main() -> None:
        async with serving(app, concurrency=7) as worker:
            assert (worker._state.slots, worker._parts.scalers) == (7, [])
            assert "windlass-scaler" not in [task.get_name() for task in asyncio.all_tasks()]

    asyncio.run(main())


def test_a_pulse_tells_whether_work_waits_and_how_much_of_the_worker_is_in_use(bed: Bed) -> None:
    app = bed.app()
    go = threading.Event()

    @app.job
    def hold() -> None:
        go.wait(60)

    async def main() -> None:
        async with serving(app, concurrency=8, threads=2) as worker:
            await app.aenqueue_many(hold.draft() for _ in range(2))
            await until(lambda: pulse(worker).running == 2)
            await until(lambda: not pulse(worker).waiting)
            assert (pulse(worker).slots, pulse(worker).busy) == (8, 1.0)
            await app.aenqueue_many(hold.draft() for _ in range(3))
            await until(lambda: pulse(worker).waiting)
            go.set()
            await until(lambda: pulse(worker).processed == 5)
            await until(lambda: not pulse(worker).waiting)
            assert (pulse(worker).running, pulse(worker).busy) == (0, 0.0)

    def pulse(worker: Worker) -> WorkerPulse:
        return worker._parts.status.pulse()

    asyncio.run(main())


def test_demand_is_unmet_only_if_every_claim_since_the_last_look_brought_all_it_asked_for() -> None:
    running = [1, 2, 3]
    demand = Demand(running)
    demand.claimed(more=True)
    del running[1:]
    assert demand.look() == (True, 3)
    assert demand.look() == (True, 1), "no claim was made, since there was no room for one"
    demand.claimed(more=False)
    demand.claimed(more=True)
    assert demand.look() == (False, 1)
    assert demand.look() == (True, 1)
    demand.rested(waiting=True)
    assert demand.waiting, "for a thread"
    assert demand.look() == (False, 1)
