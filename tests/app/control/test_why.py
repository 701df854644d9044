"""`app.control.why`: what keeps a job from running, as a real store and real workers have it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any
from uuid import uuid4

import pytest

from tests.support.app_on_store import Bed, charged, in_state, on_embedded_stores, serving, until
from windlass import (
    Breaker,
    Context,
    Handle,
    InvalidTransition,
    RetryAfter,
    State,
    UnknownJob,
    Windlass,
)
from windlass.core.why.reason import Cause, Reason


async def reasons(app: Windlass, handle: Handle[Any]) -> list[Reason]:
    found = await app.control.awhy(handle.id)
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
        await app.control.apause("mail")
        paused, no_worker = await reasons(app, handle)
        assert (paused.cause, no_worker.cause) == (Cause.PAUSED, Cause.NO_WORKER)
        async with serving(app, concurrency="1") as worker:
            await becomes(app, handle, Cause.PAUSED)
            await app.control.aresume("mail")
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
def test_why_names_missing_threads_and_a_job_that_needs_none_runs(bed: Bed) -> None:
    app = bed.app()

    async def main() -> None:
        go = threading.Event()

        @app.job
        def block() -> None:
            go.wait(30)

        @app.job
        async def pass_by() -> None:
            pass

        async with serving(app, concurrency="10", threads="1") as worker:
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

        async with serving(app, concurrency="4") as worker:
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


def looking_on(app: Windlass) -> Windlass:
    """Return an app that has no handlers, and the same store."""
    other = Windlass()
    other.store = app.store
    return other


@on_embedded_stores
def test_why_knows_limits_without_the_app_while_a_worker_publishes_them(bed: Bed) -> None:
    """Else a job that may not start would be said to be next."""
    app = bed.app()
    app.limit("gpu", concurrency=1)

    async def main() -> None:
        go = asyncio.Event()

        @app.job(limit="gpu")
        async def train() -> None:
            await go.wait()

        @app.job(concurrency=1)
        async def report() -> None:
            await go.wait()

        other = looking_on(app)
        unknown = await report.aenqueue()
        assert not (await other.control.awhy(unknown.id)).knows_limits
        async with serving(app, concurrency="9"):
            for handler, limit in ((train, "gpu"), (report, "kind:report")):
                await in_state(await handler.aenqueue(), State.RUNNING, State.PENDING)
                waiting = await handler.aenqueue()
                # For longer than a wish that was not met is remembered, it has to be told.
                reason = await becomes(other, waiting, Cause.LIMITED)
                assert reason.facts["limit"] == limit
                assert "1 at a time" in reason.message
                assert (await other.control.awhy(waiting.id)).knows_limits
            go.set()

    asyncio.run(main())


def test_a_job_that_keeps_its_place_is_retried_now_and_those_behind_it_follow(bed: Bed) -> None:
    """It is pending meanwhile, and its key is held back by a worker, or in the record."""
    app = bed.app()

    async def main() -> None:
        done: list[int] = []

        @app.job(key="account", ordered=True, max_retries=3)
        async def book(ctx: Context, account: str, amount: int) -> None:
            if amount == 1 and not ctx.job.failures:
                raise RetryAfter("1h")
            done.append(amount)

        async with serving(app, concurrency="4"):
            first = await book.aenqueue("ada", 1)
            await charged(first, 1)
            second = await book.aenqueue("ada", 2)
            reason = await becomes(looking_on(app), second, Cause.IN_ORDER)
            retried = (await first.ainfo()).history[-1].retry_at
            assert (reason.until, reason.remedy) == (retried, f"windlass jobs retry {first.id}")
            with pytest.raises(
                InvalidTransition, match=f"behind job {first.id}; retry that one first"
            ):
                await app.control.aretry(second.id)
            await looking_on(app).control.aretry(first.id)
            await in_state(second, State.COMPLETED)
            assert done == [1, 2]
        third = await book.aenqueue("bob", 3)
        with pytest.raises(InvalidTransition):
            await app.control.aretry(third.id)

    asyncio.run(main())


@on_embedded_stores
def test_a_key_that_was_given_back_before_its_retry_is_free_at_once(bed: Bed) -> None:
    app = bed.app()

    async def main() -> None:
        @app.job(key="account", ordered=True, max_retries=3)
        async def book(ctx: Context, account: str) -> None:
            if not ctx.job.failures:
                raise RetryAfter("1h")

        async with serving(app):
            first = await book.aenqueue("ada")
            await charged(first, 1)
        async with serving(app):
            await becomes(app, first, Cause.RETRYING)
            await app.control.aretry(first.id)
            await in_state(first, State.COMPLETED)

    asyncio.run(main())


@on_embedded_stores
def test_why_reports_a_pause_of_a_kind_for_jobs_under_its_alias(bed: Bed) -> None:
    app = bed.app()
    before = bed.app(store=app.store)

    @before.job
    async def post() -> None:
        pass

    @app.job(aliases=["post"])
    async def send() -> None:
        pass

    async def main() -> None:
        await app.control.apause(kind="send")
        async with serving(app):
            handle = await post.aenqueue()
            reason = (await reasons(app, handle))[0]
            assert (reason.cause, reason.facts) == (Cause.PAUSED, {"kind": "send"})

    asyncio.run(main())


@on_embedded_stores
def test_why_reports_a_used_up_rate(bed: Bed) -> None:
    app = bed.app()

    async def main() -> None:
        app.limit("bank", rate="1/h")

        @app.job(limit="bank")
        async def pay() -> None:
            pass

        async with serving(app):
            await in_state(await pay.aenqueue(), State.COMPLETED)
            reason = await becomes(app, await pay.aenqueue(), Cause.LIMITED)
            assert reason.facts["limit"] == "bank"

    asyncio.run(main())


@on_embedded_stores
def test_why_reports_an_open_breaker_to_an_app_without_handlers_too(bed: Bed) -> None:
    app = bed.app()

    async def main() -> None:

        @app.job(breaker=Breaker("bank", failures=1, cooldown="1h", on=[OSError]), max_retries=9)
        async def pay() -> None:
            raise OSError("down")

        async with serving(app):
            await pay.aenqueue()
            reason = await becomes(app, await pay.aenqueue(), Cause.BREAKER)
            assert reason.remedy == "windlass breakers probe bank"
            assert reason.until is not None
            again = await becomes(looking_on(app), await pay.aenqueue(), Cause.BREAKER)
            assert (again.until, again.remedy) == (reason.until, reason.remedy)

    asyncio.run(main())


@on_embedded_stores
def test_error_messages_are_masked_by_the_readers_settings(bed: Bed) -> None:
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
        assert "S3cret" in (await reasons(app, handle))[0].message
        (reason,) = await reasons(asking, handle)
        assert reason.cause is Cause.DEAD
        assert "shoe_size" in reason.message
        assert "S3cret" not in reason.message + str(reason.facts)

    asyncio.run(main())


@on_embedded_stores
def test_a_job_that_is_not_there_is_an_error(bed: Bed) -> None:
    async def main() -> None:
        with pytest.raises(UnknownJob):
            await bed.app().control.awhy(uuid4())

    asyncio.run(main())


def test_an_answer_for_some_queues_names_no_jobs_of_others() -> None:
    async def main() -> None:
        app = Windlass("memory://")

        @app.job(queue="mail")
        async def first() -> None: ...

        @app.job(queue="bulk", name="hidden")
        async def other() -> None: ...

        flow = app.flow("both", queue="mail")
        hidden = flow.add(app.producer("hidden").draft({}))
        shown = flow.add(app.producer("first").draft({}), after=[hidden])
        await flow.aenqueue()
        whole = await app.control.awhy(shown.handle.id)
        assert "hidden" in whole.reasons[0].message
        limited = await app.control.awhy(shown.handle.id, queues=["mail"])
        assert limited.reasons[0].cause is Cause.FLOW
        assert "hidden" not in limited.reasons[0].message
        assert limited.reasons[0].facts["before"] == []
        with pytest.raises(UnknownJob):
            await app.control.awhy(hidden.handle.id, queues=["mail"])

    asyncio.run(main())
