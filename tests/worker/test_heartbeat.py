"""A heart renews the lease, and lets others see how the worker is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import cast

import pytest

from tests.support.app_on_store import until
from tests.support.worker_state import RecordingState
from windlass.core.workers import WorkerPulse
from windlass.worker import heartbeat as heart
from windlass.worker.heartbeat import Heartbeat
from windlass.worker.lease import Lease
from windlass.worker.status import WorkerStatus


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heart, "_POLL_SECONDS", 0.005)
    monkeypatch.setattr(heart, "BEAT_SECONDS", 0.02)


@asynccontextmanager
async def beating(
    pulse: Callable[[], WorkerPulse], *, interval: float, alive: bool = True
) -> AsyncIterator[list[WorkerPulse]]:
    """Let a heart beat around a block, and give what it has told."""
    told: list[WorkerPulse] = []

    def renew(worker: str, pulse: WorkerPulse, timeout: timedelta) -> bool:
        told.append(pulse)
        return alive

    beats = Heartbeat(
        renew,
        interval=timedelta(seconds=interval),
        patience=None,
        state=RecordingState(),
        status=cast("WorkerStatus", SimpleNamespace(pulse=pulse, show=lambda: None)),
        lease=cast("Lease", SimpleNamespace(lose=lambda: None)),
    )
    beats.start()
    try:
        yield told
    finally:
        await beats.stop()


def test_others_see_how_a_worker_is_long_before_its_lease_wants_a_renewal() -> None:
    now = WorkerPulse(slots=5)

    async def main() -> None:
        nonlocal now
        async with beating(lambda: now, interval=60) as told:
            await until(lambda: told)
            now = WorkerPulse(slots=5, running=3)
            await until(lambda: told[-1].running == 3)

    asyncio.run(main())


def test_an_idle_worker_is_seen_as_often_as_one_with_news() -> None:
    """Prevents idle workers from looking dead: they were seen once in a third of their lease."""

    async def main() -> None:
        async with beating(lambda: WorkerPulse(slots=5), interval=60) as told:
            await until(lambda: len(told) > 3)

    asyncio.run(main())


def test_the_lease_is_renewed_in_any_case() -> None:
    async def main() -> None:
        async with beating(lambda: WorkerPulse(slots=5), interval=0.05) as told:
            await until(lambda: len(told) > 3)

    asyncio.run(main())
