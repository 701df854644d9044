"""A heart renews the lease, and soon tells what is new, but no more than there is to tell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from tests.app.bed import until
from windlass.core.job import Pulse
from windlass.runtime import heart
from windlass.runtime.heart import Heart, has_news


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heart, "_LOOK", 0.005)
    monkeypatch.setattr(heart, "NEWS", 0.02)


@asynccontextmanager
async def beating(
    pulse: Callable[[], Pulse], *, interval: float, alive: bool = True
) -> AsyncIterator[list[Pulse]]:
    """Let a heart beat around a block, and give what it has told."""
    told: list[Pulse] = []

    def renew(worker: str, pulse: Pulse, timeout: timedelta) -> bool:
        told.append(pulse)
        return alive

    beats = Heart(
        renew,
        interval=timedelta(seconds=interval),
        patience=None,
        worker_id=lambda: "w",
        pulse=pulse,
        lost=lambda: None,
    )
    beats.start()
    try:
        yield told
    finally:
        await beats.stop()


def test_what_is_new_is_told_long_before_the_lease_wants_a_renewal() -> None:
    now = Pulse(slots=5)

    async def main() -> None:
        nonlocal now
        async with beating(lambda: now, interval=60) as told:
            await until(lambda: [each.slots for each in told] == [5])
            now = Pulse(slots=5, running=3)
            await until(lambda: [each.running for each in told] == [0, 3])

    asyncio.run(main())


def test_where_nothing_is_new_nothing_is_written_before_the_lease_wants_it() -> None:
    """Prevents idle workers by the hundred from keeping a store busy with their own health."""
    looks = 0

    def pulse() -> Pulse:
        nonlocal looks
        looks += 1
        return Pulse(slots=5, cpu=looks / 10, busy=looks / 100)

    async def main() -> None:
        async with beating(pulse, interval=60) as told:
            await until(lambda: looks > 5)
            assert len(told) == 1

    asyncio.run(main())


def test_the_lease_is_renewed_in_any_case() -> None:
    async def main() -> None:
        async with beating(lambda: Pulse(slots=5), interval=0.05) as told:
            await until(lambda: len(told) > 3)

    asyncio.run(main())


def test_under_a_new_lease_everything_is_new_again() -> None:
    async def main() -> None:
        async with beating(lambda: Pulse(slots=5), interval=60, alive=False) as told:
            await until(lambda: len(told) > 1)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("pulse", "is_news"),
    [
        (Pulse(), False),
        (Pulse(cpu=0.5, busy=0.5, loop_lag=timedelta(seconds=1)), False),
        (Pulse(running=1), True),
        (Pulse(processed=1), True),
        (Pulse(state="draining"), True),
        (Pulse(listening=False), True),
    ],
)
def test_what_always_changes_is_no_news(pulse: Pulse, is_news: bool) -> None:
    assert has_news(Pulse(), pulse) is is_news
