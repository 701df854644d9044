"""Pauses of queues, kinds and keys while workers run, and the drain of a queue."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.support.app_on_store import Bed, in_state, serving, until
from windlass import State
from windlass.core.policies.pauses import Pauses


@pytest.mark.parametrize(
    "what", [{"queue": "mail"}, {"kind": "send"}, {"key": "acme"}], ids=["queue", "kind", "key"]
)
def test_paused_jobs_do_not_start_from_a_second_on_and_all_others_do(
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
            assert await app.control.apause(**what)
            assert not await app.control.apause(**what)
            await asyncio.sleep(1)
            held = await send.aenqueue("acme")
            assert await (await other.aenqueue("bolt")).aresult("60s") == "bolt"
            job = await held.ainfo()
            assert (job.state, job.attempt) == (State.PENDING, 0)
            go.set()
            assert await runs.aresult("60s") == "acme", "running jobs continue"
            assert await app.control.aresume(**what)
            assert not await app.control.aresume(**what)
            assert await held.aresult("60s") == "acme"
            assert not await app.control.apaused()

    asyncio.run(main())


def test_all_pauses_are_listed(bed: Bed) -> None:
    app = bed.app()

    async def main() -> None:
        await app.control.apause("a:b")
        await app.control.apause(kind="send")
        await app.control.apause(key="acme")
        paused = await app.control.apaused()
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
        await app.control.apause(kind="send")
        handle = await send_old.aenqueue()
        async with serving(app) as worker:
            assert worker._state.policies.paused.kinds == {"send", "send_old"}
            assert await handle.astate() is State.PENDING
            await app.control.aresume(kind="send")
            assert await app.handle(handle.id).aresult("60s") == 1

    asyncio.run(main())


@pytest.mark.parametrize(
    "what", [{}, {"queue": "a", "kind": "b"}, {"queue": ""}, {"key": "\n"}, {"kind": "x" * 201}]
)
def test_invalid_pauses_are_refused(bed: Bed, what: dict[str, Any]) -> None:
    app = bed.app()
    for verb in (app.control.apause, app.control.aresume):
        with pytest.raises(ValueError, match=r"exactly one of queue|a queue|a key|a kind"):
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
        async with serving(app, concurrency=3):
            await until(lambda: began == 3)
            assert not await app.control.apause_and_wait(
                "mail", timeout="300ms", progress=seen.append
            )
            assert seen[-1] == 3
            drain = asyncio.create_task(app.control.apause_and_wait("mail"))
            await asyncio.sleep(2.5)
            assert not drain.done(), "three of them still run"
            go.set()
            assert await asyncio.wait_for(drain, 60)
            assert began == 3
            looks: list[int] = []
            assert await app.control.apause_and_wait("mail", progress=looks.append)
            assert looks == [0], "it was paused long enough before, so the first look ends it"
            assert (await app.control.apaused()).queues == {"mail"}

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
            drain = asyncio.create_task(app.control.apause_and_wait("mail", timeout="20s"))
            while not drain.done():
                await send.aenqueue()
                await asyncio.sleep(0.01)
            over = time.monotonic()
            assert drain.result()
            await asyncio.sleep(0.3)
        assert all(at < over for at in began)

    asyncio.run(main())
