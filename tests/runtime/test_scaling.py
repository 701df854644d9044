"""A worker with `slots=2..40` has as many as its load wants, and says why."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from tests.app.bed import Bed, on_embedded_stores, serving, told, until
from windlass.core.bounds import Bounds
from windlass.core.job import Pulse
from windlass.core.scale import Pauses
from windlass.runtime import Worker
from windlass.runtime import worker as worker_module
from windlass.runtime.demand import Demand
from windlass.runtime.gauges import Average, CpuGauge, Peak, Typical
from windlass.runtime.scaler import ProcessScaler

BRISK = Pauses(look=0.02, rise=0.05, relief=0.1, fall=0.3, forget=0.3)
"""As in a worker, but sooner."""


@pytest.fixture
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "SLOTS_PAUSES", BRISK)


@pytest.mark.usefixtures("brisk")
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
        async with serving(app, slots="2..40", lease="1s") as worker:
            await until(lambda: ended == 600, within=30)
            await until(lambda: worker._slots == 2)
            await until(lambda: shown(2))
            # It has not become deaf on its way down.
            await (await nap.aenqueue()).aresult("10s")

    async def shown(slots: int) -> bool:
        (record,) = await app.store.workers()
        assert (record.info.slots, record.info.least_slots) == (40, 2)
        return record.pulse.slots == slots

    asyncio.run(main())
    assert 5 <= most <= 40, "two slots would have run two at once"
    steps = told(caplog, "slots.scaled")
    up = [step for step in steps if step["to"] > step["from"]]
    down = [step for step in steps if step["to"] < step["from"]]
    assert (up[0]["from"], up[0]["reason"]) == (2, "work waits, and 2 slots are full")
    # Not the first one: on a machine that does much else, the event loop may have been late.
    assert down[-1]["to"] == 2
    assert "slots were in use" in down[-1]["reason"] or "no job ran" in down[-1]["reason"]
    measured = {"waiting", "most_running", "service_time", "throughput", "loop_lag", "cpu"}
    assert all(measured | {"bounds"} <= step.keys() for step in steps)


@pytest.mark.usefixtures("brisk")
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
        beyond = max(beyond, now - workers[0]._slots)
        await go.wait()
        now -= 1

    async def main() -> None:
        async with serving(app, slots="2..8") as worker:
            workers.append(worker)
            await app.aenqueue_many(hold.draft() for _ in range(20))
            await until(lambda: now == 8)
            go.set()
            await until(lambda: worker.processed == 20)

    asyncio.run(main())
    assert beyond == 0


@pytest.mark.usefixtures("brisk")
@on_embedded_stores
def test_handlers_that_block_the_loop_get_fewer_slots(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    """One that blocks runs alone whatever the slots are; more would only be held from others."""
    caplog.set_level(logging.INFO, "windlass.scaler")
    app = bed.app()
    block = threading.Event()
    blocking = False

    @app.job
    async def work() -> None:
        if blocking:
            block.wait(0.3)
        else:
            await asyncio.sleep(0.02)

    async def main() -> None:
        nonlocal blocking
        await app.aenqueue_many(work.draft() for _ in range(900))
        async with serving(app, slots="2..20", shutdown_timeout="1s") as worker:
            await until(lambda: worker._slots == 20)
            blocking = True
            await until(lambda: worker._slots == 2, within=60)
            block.set()

    asyncio.run(main())
    assert any("the event loop is late" in each["reason"] for each in told(caplog, "slots.scaled"))


@on_embedded_stores
def test_a_fixed_number_of_slots_is_watched_by_nobody(bed: Bed) -> None:
    app = bed.app()

    async def main() -> None:
        async with serving(app, slots=7) as worker:
            assert (worker._slots, worker._scalers) == (7, [])
            assert "windlass-scaler" not in [task.get_name() for task in asyncio.all_tasks()]

    asyncio.run(main())


def test_a_pulse_tells_whether_work_waits_and_how_much_of_the_worker_is_in_use(bed: Bed) -> None:
    app = bed.app()
    go = threading.Event()

    @app.job
    def hold() -> None:
        go.wait(10)

    async def main() -> None:
        async with serving(app, slots=8, threads=2) as worker:
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

    def pulse(worker: Worker) -> Pulse:
        return worker._pulse()

    asyncio.run(main())


def test_demand_is_unmet_only_if_every_claim_since_the_last_look_brought_all_it_asked_for() -> None:
    running = 3
    demand = Demand(lambda: running)
    demand.claimed(more=True)
    running = 1
    assert demand.look() == (True, 3)
    assert demand.look() == (True, 1), "no claim was made, since there was no room for one"
    demand.claimed(more=False)
    demand.claimed(more=True)
    assert demand.look() == (False, 1)
    assert demand.look() == (True, 1)
    demand.rested(waiting=True)
    assert demand.waiting, "for a thread"
    assert demand.look() == (False, 1)


def test_an_average_weighs_values_by_how_long_they_held() -> None:
    average = Average(1.0)
    average.add(10.0, 0.25)
    assert average.value == pytest.approx(10)
    average.add(0.0, 10.0)
    assert average.value < 0.01
    average.reset()
    average.add(4.0, 0.25)
    assert average.value == pytest.approx(4)


def test_a_peak_is_forgotten_after_its_window() -> None:
    peak = Peak(10.0)
    assert [peak.add(value, now) for now, value in enumerate([3, 9, 2, 5, 1])] == [3, 9, 9, 9, 9]
    assert peak.add(0, 11.5) == 5
    assert peak.add(0, 13.5) == 1
    assert peak.add(0, 30.0) == 0


def test_one_hiccup_is_not_typical() -> None:
    typical = Typical(5)
    assert [typical.add(lag) for lag in (9.0, 0.1, 0.1, 0.1, 9.0)] == [None, None, 0.1, 0.1, 0.1]
    assert typical.add(9.0) == 0.1
    assert typical.add(9.0) == 9.0


def test_the_cpu_gauge_sees_what_this_process_computes() -> None:
    gauge = CpuGauge()
    sum(range(2_000_000))
    assert gauge.read() > 0.05
    threading.Event().wait(0.2)
    assert gauge.read() < 0.5


# -- processes -------------------------------------------------------------------------------------

BUSY: dict[str, Any] = {"slots": 10, "running": 10, "busy": 1.0, "waiting": True, "cpu": 0.05}
IDLE = Pulse(slots=10)


def test_processes_follow_their_pulses_and_every_change_is_logged_with_its_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "windlass.scaler")
    scaler = ProcessScaler(Bounds(least=1, most=4), Bounds.of(10), now=0.0)
    present, seen = 1, []
    for now in range(1, 400):
        pulses = [Pulse(**BUSY) if now < 60 else IDLE] * present
        decision = scaler.consider(present, pulses, now=float(now))
        if decision is not None:
            present = decision.target
            seen.append(present)
    assert seen == [2, 3, 4, 2, 1]
    steps = told(caplog, "processes.scaled")
    assert [(step["from"], step["to"]) for step in steps] == [
        (1, 2),
        (2, 3),
        (3, 4),
        (4, 2),
        (2, 1),
    ]
    assert steps[0]["reason"] == "work waits, and the process has all it takes"
    assert steps[-1]["reason"] == "2 processes had next to nothing to do for 60s"


def test_silence_is_not_taken_for_idleness() -> None:
    """While the store cannot be reached no pulse arrives, and nobody is sent home for that."""
    scaler = ProcessScaler(Bounds(least=1, most=4), Bounds.of(10), now=0.0)
    for now in range(200):
        assert scaler.consider(4, [], now=float(now)) is None
    assert scaler.consider(4, [IDLE] * 4, now=200.0) is None
    assert scaler.consider(4, [IDLE] * 4, now=258.0) is None
    assert scaler.consider(4, [IDLE] * 4, now=260.0) is not None
