"""Pauses of queues, kinds and keys while workers run, and the drain of a queue."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.app.bed import Bed, in_state, serving, until
from windlass import State
from windlass.core.pauses import Pauses


@pytest.mark.parametrize(
    "what", [{"queue": "mail"}, {"kind": "send"}, {"key": "acme"}], ids=["queue", "kind", "key"]
)
def test_what_is_paused_is_not_started_within_a_second_and_everything_else_is(
    bed: Bed, what: dict[str, str]
) -> None:
    app = bed.app()
    go = asyncio.Event()

    @app.job(key="tenant", queue="mail", aliases=["send_old"])
    async def send(tenant: str) -> str:
        await go.wait()
        return tenant

    @app.job(key="tenant")
    async def other(tenant: str) -> str:
        return tenant

    async def main() -> None:
        async with serving(app):
            runs = await send.aenqueue("acme")
            await in_state(runs, State.RUNNING)
            assert await app.control.pause(**what)
            assert not await app.control.pause(**what)
            await asyncio.sleep(1)
            held = await send.aenqueue("acme")
            assert await (await other.aenqueue("bolt")).aresult("10s") == "bolt"
            job = await held.ajob()
            assert (job.state, job.attempt) == (State.PENDING, 0)
            go.set()
            assert await runs.aresult("10s") == "acme", "what runs goes on"
            assert await app.control.resume(**what)
            assert not await app.control.resume(**what)
            assert await held.aresult("10s") == "acme"
            assert not await app.control.paused()

    asyncio.run(main())


def test_all_that_is_paused_is_told(bed: Bed) -> None:
    app = bed.app()

    async def main() -> None:
        await app.control.pause("a:b")
        await app.control.pause(kind="send")
        await app.control.pause(key="acme")
        paused = await app.control.paused()
        assert list(paused) == [("queue", "a:b"), ("kind", "send"), ("key", "acme")]
        assert paused == Pauses(
            queues=frozenset({"a:b"}), kinds=frozenset({"send"}), keys=frozenset({"acme"})
        )

    asyncio.run(main())


def test_a_kind_is_paused_under_the_names_that_it_had(bed: Bed) -> None:
    app, before = bed.app(), bed.app()
    before.store = app.store

    @before.job(name="send_old")
    async def send_old() -> None: ...

    @app.job(name="send", aliases=["send_old"])
    async def send() -> int:
        return 1

    async def main() -> None:
        await app.control.pause(kind="send")
        handle = await send_old.aenqueue()
        async with serving(app) as worker:
            assert worker._policies.paused.kinds == {"send", "send_old"}
            assert await handle.astatus() is State.PENDING
            await app.control.resume(kind="send")
            assert await app.job_by_id(handle.id).aresult("10s") == 1

    asyncio.run(main())


@pytest.mark.parametrize(
    "what", [{}, {"queue": "a", "kind": "b"}, {"queue": ""}, {"key": "\n"}, {"kind": "x" * 201}]
)
def test_what_cannot_be_paused_is_refused(bed: Bed, what: dict[str, Any]) -> None:
    app = bed.app()
    for verb in (app.control.pause, app.control.resume):
        with pytest.raises(ValueError, match=r"say what|a queue|a key|a kind"):
            asyncio.run(verb(**what))


# -- drain -----------------------------------------------------------------------------------------


def test_a_drain_waits_for_what_runs_and_starts_nothing_more(bed: Bed) -> None:
    app = bed.app()
    go, began = asyncio.Event(), 0

    @app.job(queue="mail")
    async def send() -> None:
        nonlocal began
        began += 1
        await go.wait()

    seen: list[int] = []

    async def main() -> None:
        await app.aenqueue_many(send.draft() for _ in range(10))
        async with serving(app, slots=3):
            await until(lambda: began == 3)
            assert not await app.control.drain("mail", timeout="300ms", told=seen.append)
            assert seen[-1] == 3
            drain = asyncio.create_task(app.control.drain("mail"))
            await asyncio.sleep(2.5)
            assert not drain.done(), "three of them still run"
            go.set()
            assert await asyncio.wait_for(drain, 10)
            assert began == 3
            again = time.monotonic()
            assert await app.control.drain("mail")
            assert time.monotonic() - again < 1, "it was paused long enough before"
            assert (await app.control.paused()).queues == {"mail"}

    asyncio.run(main())


def test_a_drain_of_an_empty_queue_ends_once_workers_have_heeded_it(bed: Bed) -> None:
    """Prevents: a drain that is over while a worker that knows nothing of it claims a job."""
    app = bed.app()
    began: list[float] = []

    @app.job(queue="mail")
    async def send() -> None:
        began.append(time.monotonic())
        await asyncio.sleep(0.01)

    async def main() -> None:
        async with serving(app):
            drain = asyncio.create_task(app.control.drain("mail", timeout="20s"))
            while not drain.done():
                await send.aenqueue()
                await asyncio.sleep(0.01)
            over = time.monotonic()
            assert drain.result()
            await asyncio.sleep(0.3)
        assert all(at < over for at in began)

    asyncio.run(main())
