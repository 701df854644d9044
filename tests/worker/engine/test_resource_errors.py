"""A worker that runs out of a resource cleans up, once for many errors."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import weakref
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest

from tests.support.app_on_store import (
    Bed,
    Clock,
    charged,
    in_state,
    log_lines,
    on_embedded_stores,
    serving,
    until,
)
from windlass import ErrorClass, State


class Down(Exception):
    status = 503


def no_files() -> OSError:
    return OSError(errno.EMFILE, os.strerror(errno.EMFILE))


# -- resource --------------------------------------------------------------------------------------


class Hoard:
    """Something that only the collector frees, since it holds itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def no_chance_collection() -> Iterator[None]:
    """Let nothing be collected unless somebody asks for it."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@on_embedded_stores
@pytest.mark.usefixtures("no_chance_collection")
@pytest.mark.parametrize("error", [MemoryError, no_files], ids=["memory", "files"])
@pytest.mark.parametrize("pool", ["loop", "threads"])
def test_a_worker_cleans_up_after_a_resource_error_and_the_job_waits_longer(
    bed: Bed, caplog: pytest.LogCaptureFixture, error: Any, pool: str
) -> None:
    clock = Clock()
    app = bed.app(store=bed.store(clock=clock))
    hoards: list[weakref.ref[Hoard]] = []

    def leak() -> NoReturn:
        hoard = Hoard()
        hoards.append(weakref.ref(hoard))
        raise error()

    @app.job(max_retries=1)
    async def on_the_loop() -> None:
        leak()

    @app.job(max_retries=1)
    def in_a_thread() -> None:
        leak()

    async def main() -> None:
        async with serving(app, lease="1h"):
            handle = await (on_the_loop if pool == "loop" else in_a_thread).aenqueue()
            job = await charged(handle, 1)
            assert (job.state, job.reason) == (State.SCHEDULED, "resource error")
            assert 15 <= (job.due_at - clock.now).total_seconds() <= 30
            await until(lambda: hoards[0]() is None)
            clock.now = job.due_at
            dead = await in_state(handle, State.DEAD)
            assert dead.reason == "gave up after 2 failures, the last a resource error"

    asyncio.run(main())
    assert [line["error_class"] for line in log_lines(caplog, "job.retried")] == ["resource"]


@on_embedded_stores
def test_many_resource_errors_at_once_or_soon_after_share_one_clean_up(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    app = bed.app()

    @app.job
    async def grow() -> None:
        raise MemoryError

    async def main() -> None:
        handles = await app.aenqueue_many(grow.draft() for _ in range(50))
        async with serving(app) as worker:
            for handle in handles:
                await in_state(handle, State.SCHEDULED)
            await until(lambda: log_lines(caplog, "resources.cleaned"))
            await in_state(await grow.aenqueue(), State.SCHEDULED)
            next_one = worker._parts.engine.cleaner._timer
            assert next_one is not None
            assert next_one.when() - asyncio.get_running_loop().time() > 5

    asyncio.run(main())
    (line,) = log_lines(caplog, "resources.cleaned")
    assert line["objects"] >= 0


@on_embedded_stores
def test_no_other_error_makes_the_worker_clean_up(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    app = bed.app()
    app.classify(ErrorClass.SYSTEM, Down)

    @app.job(max_retries=0)
    async def fail(how: str) -> None:
        raise {"down": Down(), "bad": ValueError()}[how]

    async def main() -> None:
        async with serving(app) as worker:
            await in_state(await fail.aenqueue("down"), State.SCHEDULED)
            await in_state(await fail.aenqueue("bad"), State.DEAD)
            assert worker._parts.engine.cleaner._timer is None

    asyncio.run(main())
    assert log_lines(caplog, "resources.cleaned") == []
