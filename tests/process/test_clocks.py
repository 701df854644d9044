"""What a worker knows of its host's clock: by how much, at least, it is not the store's."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.app_on_store import Bed, Clock, log_lines, serving, until
from windlass import Retry
from windlass.app.doctor.fleet_checks import clocks, workers_clocks_apart
from windlass.process.clocks import ClockGauge, clock_of
from windlass.worker.services.schedules.clock_steps import ClockSteps

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(("off", "which"), [(-DAY, "ahead of"), (DAY, "behind")])
def test_a_worker_tells_by_how_much_its_clock_is_not_the_stores(
    bed: Bed, off: timedelta, which: str
) -> None:
    clock = Clock()
    clock.now = datetime.now(UTC) + off
    app = bed.app(store=bed.store(clock=clock))

    async def is_told() -> bool:
        (known,) = await app.store.workers()
        return abs(known.pulse.clock_ahead + off) < timedelta(minutes=1)

    async def main() -> None:
        async with serving(app, lease="1s") as worker:
            await until(is_told)
            (found,) = workers_clocks_apart(await app.store.workers())
            assert which in found.problem
            assert worker.id in found.problem

    asyncio.run(main())


def test_a_slow_answer_accuses_no_clock() -> None:
    """Prevents a busy store from looking like a host whose clock is wrong."""
    gauge = ClockGauge()
    now = gauge.host_time()
    gauge.compare(now - timedelta(seconds=9), now - timedelta(seconds=5))
    assert gauge.ahead == timedelta(0)
    gauge.compare(now, now - timedelta(seconds=5))
    assert gauge.ahead == timedelta(seconds=5)
    gauge.compare(now, now + timedelta(minutes=5))
    assert -timedelta(minutes=5) <= gauge.ahead < -timedelta(minutes=4)


def test_a_loop_with_a_time_of_its_own_is_asked_for_it() -> None:
    """Prevents deadlines by one clock and timers by another, as in a test that travels."""

    class Ahead(asyncio.SelectorEventLoop):
        def time(self) -> float:
            return super().time() + 1e6

    usual, ahead, patched = asyncio.SelectorEventLoop(), Ahead(), asyncio.SelectorEventLoop()
    patched.time = lambda: 42.0  # type: ignore[method-assign]
    try:
        assert clock_of(usual) is time.monotonic
        assert clock_of(ahead)() > usual.time() + 1e5
        assert clock_of(patched)() == 42.0
    finally:
        for loop in (usual, ahead, patched):
            loop.close()


# -- steps of the store's clock --------------------------------------------------------------------


def test_a_retry_keeps_its_delay_when_the_stores_clock_is_set_back(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    """Prevents that what was due in a moment waits for as long as the clock was set back."""
    clock = Clock()
    app = bed.app(store=bed.store(clock=clock))
    runs: list[int] = []

    @app.job(retry=Retry(max_retries=3, initial=MINUTE))
    async def fragile() -> None:
        runs.append(len(runs))
        if len(runs) == 1:
            raise ValueError("not yet")

    async def main() -> None:
        handle = await fragile.aenqueue()
        async with serving(app, lease="5m"):
            await until(lambda: _is(app, handle, "scheduled"))
            clock.now -= HOUR
            await until(lambda: log_lines(caplog, "clock.stepped"))
            found = await clocks(app.store, [])
            clock.now += 2 * MINUTE  # Which may be noticed as a step, too.
            await handle.aresult("60s")
        (problem,) = [each.problem for each in found if "was set back" in each.problem]
        assert "by 1h" in problem

    asyncio.run(main())
    line, *_ = log_lines(caplog, "clock.stepped")
    assert line["by"].startswith("-1h")
    assert line["moved"] == 1


async def _is(app: Any, handle: Any, state: str) -> bool:
    job = await app.store.get(handle.id)
    return job is not None and job.state.value == state


@pytest.mark.parametrize("is_noticed", [True, False], ids=["by a worker", "by the next one"])
def test_jobs_in_order_stay_so_when_the_stores_clock_is_set_back(
    bed: Bed, is_noticed: bool
) -> None:
    """Prevents that jobs which come after the step overtake those which came before it."""
    clock = Clock()
    app = bed.app(store=bed.store(clock=clock))
    began: list[int] = []
    gate: Any = None

    @app.job(key="account", ordered=True)
    async def post(account: str, number: int) -> None:
        began.append(number)
        await gate.wait()

    async def enqueue(first: int) -> None:
        for number in range(first, first + 5):
            await post.aenqueue("acme", number)

    async def main() -> None:
        nonlocal gate
        gate = asyncio.Event()
        if not is_noticed:
            await enqueue(0)
            clock.now -= HOUR
            await enqueue(5)
            gate.set()
        async with serving(app, lease="5m"):
            if is_noticed:
                await enqueue(0)
                await until(lambda: began)
                clock.now -= HOUR
                await enqueue(5)
                gate.set()
            await until(lambda: len(began) == 10)

    asyncio.run(main())
    assert began == list(range(10))


@pytest.mark.parametrize(("by", "sign"), [(-HOUR, "-"), (HOUR, "")])
def test_a_step_that_many_workers_notice_is_said_once(
    bed: Bed, caplog: pytest.LogCaptureFixture, by: timedelta, sign: str
) -> None:
    """Prevents a line for each worker, and retries that come sooner by the step of each."""
    clock = Clock()
    store = bed.app(store=bed.store(clock=clock)).store

    async def main() -> None:
        workers = [ClockSteps(store) for _ in range(3)]
        for now in (clock.now, clock.now + timedelta(milliseconds=500), clock.now + by):
            clock.now = now
            for each in workers:
                await each.look(now, each.time())

    asyncio.run(main())
    (line,) = log_lines(caplog, "clock.stepped")
    assert line["by"].startswith((f"{sign}1h", f"{sign}59m"))


def test_a_clock_that_runs_or_is_slewed_has_not_stepped(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    """Prevents an alarm for what NTP does all day, and for an answer that was slow."""
    clock = Clock()
    store = bed.app(store=bed.store(clock=clock)).store

    async def main() -> None:
        steps = ClockSteps(store)
        # The last but one was asked long before it was answered, so much may have passed since.
        for slewed, slow in ((0.0, 0.0), (-0.9, 0.0), (0.0, 0.0), (4.0, 20.0), (20.0, 0.0)):
            await steps.look(clock.now + timedelta(seconds=slewed), steps.time() - slow)

    asyncio.run(main())
    assert log_lines(caplog, "clock.stepped") == []
