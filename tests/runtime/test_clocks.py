"""What a worker knows of its host's clock: by how much, at least, it is not the store's."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from tests.app.bed import Bed, Clock, serving, until
from windlass.cli.checkup import workers_clocks_apart
from windlass.runtime.clocks import ClockGauge, clock_of

DAY = timedelta(days=1)


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
