"""Meters of a program's own that raise hold up no job, keep no token, and are logged once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.app_on_store import in_state, log_lines, serving
from windlass import Meters, State, Windlass
from windlass.observability.meters import guarded


def broken(method: str) -> type[Meters]:
    def fail(self: Meters, *given: object) -> Any:
        raise RuntimeError("the socket to the collector is gone")

    what = property(fail) if method == "tallies" else fail
    return type("Broken", (Meters,), {method: what})


@pytest.mark.parametrize("method", ["claimed", "ran", "settled", "called", "tallies"])
def test_meters_that_raise_strand_no_job_and_keep_no_token(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = Windlass("memory://", meters=broken(method))
    ran: list[int] = []

    @app.job(concurrency=1)
    async def send(number: int) -> None:
        ran.append(number)

    async def work() -> None:
        jobs = [await send.aenqueue(number) for number in range(3)]
        async with serving(app, concurrency=2):
            for job in jobs:
                await in_state(job, State.COMPLETED)
        await app.aclose()

    asyncio.run(work())
    assert sorted(ran) == [0, 1, 2]
    failed = [line["method"] for line in log_lines(caplog, "meters.failed")]
    assert failed.count(method) == 1


def test_figures_that_cannot_be_read_count_as_absent() -> None:
    meters = guarded(broken("figures")())
    meters.call_failed("claim")
    assert meters.figures().counts == {}
    guarded(broken("call_failed")()).call_failed("claim")


def test_default_meters_are_called_directly() -> None:
    meters = Meters()
    assert guarded(meters) is meters
