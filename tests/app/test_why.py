"""`app.control.why`: what keeps a job from running, as a real store and real workers have it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any
from uuid import uuid4

import pytest

from tests.app.bed import Bed, in_state, on_embedded_stores, serving, until
from windlass import Breaker, Handle, State, UnknownJob, Windlass
from windlass.core.reasons import Cause, Reason


async def reasons(app: Windlass, handle: Handle[Any]) -> list[Reason]:
    found = await app.control.why(handle.id)
    assert found.job.id == handle.id
    return list(found.reasons)


async def becomes(app: Windlass, handle: Handle[Any], cause: Cause) -> Reason:
    """Wait until the first reason is of a kind, and return it."""
    found: list[Reason] = []

    async def is_so() -> bool:
        found[:] = await reasons(app, handle)
        return found[0].cause is cause

    await until(is_so)
    return found[0]


def test_a_job_is_followed_from_its_enqueue_to_its_end(bed: Bed) -> None:
    app = bed.app()

    async def main() -> None:
        go = asyncio.Event()

        @app.job(queue="mail")
        async def wait() -> None:
            await go.wait()

        handle = await wait.aenqueue()
        assert [each.cause for each in await reasons(app, handle)] == [Cause.NO_WORKER]
        await app.control.pause("mail")
        paused, no_worker = await reasons(app, handle)
        assert (paused.cause, no_worker.cause) == (Cause.PAUSED, Cause.NO_WORKER)
        async with serving(app, slots="1") as worker:
            await becomes(app, handle, Cause.PAUSED)
            await app.control.resume("mail")
            running = await becomes(app, handle, Cause.RUNNING)
            assert running.facts["worker"] == worker.id
            second, third = await wait.aenqueue(), await wait.aenqueue()
            assert (await becomes(app, second, Cause.BUSY)).facts["slots"] == 1
            assert [each.cause for each in await reasons(app, third)] == [Cause.BUSY, Cause.BEHIND]
            go.set()
            await in_state(handle, State.COMPLETED)
        assert (await reasons(app, handle))[0].cause is Cause.COMPLETED

    asyncio.run(main())


@on_embedded_stores
def test_a_job_that_finds_no_thread_is_told_so_and_one_that_needs_none_is_run(bed: Bed) -> None:
    app = bed.app()

    async def main() -> None:
        go = threading.Event()

        @app.job
        def block() -> None:
            go.wait(30)

        @app.job
        async def pass_by() -> None:
            pass

        async with serving(app, slots="10", threads="1") as worker:
            first = await block.aenqueue()
            await in_state(first, State.RUNNING)
            second = await block.aenqueue()
            reason = await becomes(app, second, Cause.BUSY)
            assert reason.facts == {"workers": [worker.id], "threads": 1}
            await in_state(await pass_by.aenqueue(), State.COMPLETED)
            go.set()
            await in_state(second, State.COMPLETED)

    asyncio.run(main())


def test_a_limit_says_which_job_has_what_it_lacks(bed: Bed) -> None:
    app = bed.app()

    async def main() -> None:
        go = asyncio.Event()

        @app.job(concurrency=1, key="host", per="key")
        async def crawl(host: str) -> None:
            await go.wait()

        async with serving(app, slots="4") as worker:
            first = await crawl.aenqueue("a")
            await in_state(first, State.RUNNING)
            second = await crawl.aenqueue("a")
            reason = await becomes(app, second, Cause.LIMITED)
            assert reason.facts["limit"] == "kind:crawl"
            assert reason.facts["key"] == "a"
            assert reason.facts["holders"] == {worker.id: 1}
            assert reason.facts["jobs"] == [str(first.id)]
            go.set()
            await in_state(second, State.COMPLETED)

    asyncio.run(main())


@on_embedded_stores
def test_a_pause_of_a_kind_is_told_to_a_job_under_its_older_name(bed: Bed) -> None:
    app = bed.app()
    before = bed.app(store=app.store)

    @before.job
    async def post() -> None:
        pass

    @app.job(aliases=["post"])
    async def send() -> None:
        pass

    async def main() -> None:
        await app.control.pause(kind="send")
        async with serving(app):
            handle = await post.aenqueue()
            reason = (await reasons(app, handle))[0]
            assert (reason.cause, reason.facts) == (Cause.PAUSED, {"kind": "send"})

    asyncio.run(main())


@on_embedded_stores
def test_a_used_up_rate_is_told(bed: Bed) -> None:
    app = bed.app()

    async def main() -> None:
        app.limit("bank", rate="1/h")

        @app.job(resource="bank")
        async def pay() -> None:
            pass

        async with serving(app):
            await in_state(await pay.aenqueue(), State.COMPLETED)
            reason = await becomes(app, await pay.aenqueue(), Cause.LIMITED)
            assert reason.facts["limit"] == "bank"

    asyncio.run(main())


@on_embedded_stores
def test_an_open_breaker_is_told_to_whoever_has_no_handlers_too(bed: Bed) -> None:
    app = bed.app()

    async def main() -> None:

        @app.job(breaker=Breaker("bank", failures=1, cooldown="1h", on=[OSError]), max_retries=9)
        async def pay() -> None:
            raise OSError("down")

        async with serving(app):
            await pay.aenqueue()
            reason = await becomes(app, await pay.aenqueue(), Cause.BREAKER)
            assert reason.remedy == "windlass breakers close bank"
            assert reason.until is not None
            other = Windlass()
            other.store = app.store
            again = await becomes(other, await pay.aenqueue(), Cause.BREAKER)
            assert (again.until, again.remedy) == (reason.until, reason.remedy)

    asyncio.run(main())


@on_embedded_stores
def test_the_words_about_an_error_are_masked_as_the_settings_of_who_asks_say(bed: Bed) -> None:
    app = bed.app()
    asking = bed.app(redact=["shoe_size"], store=app.store)
    leak = "shoe_size=S3cret"

    @app.job(max_retries=0)
    async def fail() -> None:
        raise ValueError(leak)

    async def main() -> None:
        handle = await fail.aenqueue()
        async with serving(app):
            await in_state(handle, State.DEAD)
        assert "S3cret" in (await reasons(app, handle))[0].told
        (reason,) = await reasons(asking, handle)
        assert reason.cause is Cause.DEAD
        assert "shoe_size" in reason.told
        assert "S3cret" not in reason.told + str(reason.facts)

    asyncio.run(main())


@on_embedded_stores
def test_a_job_that_is_not_there_is_an_error(bed: Bed) -> None:
    async def main() -> None:
        with pytest.raises(UnknownJob):
            await bed.app().control.why(uuid4())

    asyncio.run(main())
