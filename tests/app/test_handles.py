"""A handle tells what became of a job, waits for it, and can cancel it."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID, uuid4

import msgspec
import pytest

from tests.support.app_on_store import STORES, Bed, in_state, serving, serving_in_a_thread, until
from windlass import (
    Context,
    InvalidTransition,
    JobCancelled,
    JobDead,
    ResultTimeout,
    State,
    SyncContext,
    UnknownJob,
    WindlassError,
)

pytestmark = pytest.mark.stores(*STORES)


@dataclass
class Receipt:
    number: int
    total: Decimal
    when: datetime


class Line(msgspec.Struct):
    text: str


WHEN = datetime(2030, 1, 1, tzinfo=UTC)


def test_results_come_back_as_the_types_that_the_handler_returns(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def pay() -> Receipt:
        return Receipt(1, Decimal("9.90"), WHEN)

    @app.job
    def lines() -> list[Line] | None:
        return [Line("a"), Line("b")]

    @app.job
    def nothing() -> None: ...

    async def main() -> None:
        async with serving(app):
            assert await (await pay.aenqueue()).aresult("60s") == Receipt(1, Decimal("9.90"), WHEN)
            assert await (await lines.aenqueue()).aresult("60s") == [Line("a"), Line("b")]
            empty = await nothing.aenqueue()
            await in_state(empty, State.COMPLETED)
            assert (await empty.ainfo()).result is None

    asyncio.run(main())


def test_blocking_code_gets_results_states_and_cancellations(bed: Bed) -> None:
    app = bed.app()
    go = threading.Event()

    @app.job
    def wait_and_say(text: str) -> str:
        go.wait(60)
        return text

    with serving_in_a_thread(app, threads=1):
        handle = wait_and_say.enqueue("hello")
        assert handle.state() in (State.PENDING, State.RUNNING)
        with pytest.raises(ResultTimeout, match=r"still (pending|running) after 20ms"):
            handle.result(timeout="20ms")
        later = wait_and_say.using(delay="1h").enqueue("later")
        assert later.cancel("changed my mind") is State.CANCELLED
        with pytest.raises(JobCancelled, match="changed my mind"):
            later.result()
        go.set()
        assert handle.result(timeout="60s") == "hello"
        assert handle.info().state is State.COMPLETED


def test_a_result_that_does_not_come_in_time_is_a_timeout_error_and_the_job_goes_on(
    bed: Bed,
) -> None:
    app = bed.app()
    go = asyncio.Event()

    @app.job
    async def slow() -> int:
        await go.wait()
        return 1

    async def main() -> None:
        async with serving(app):
            handle = await slow.aenqueue()
            with pytest.raises(TimeoutError) as caught:
                await handle.aresult("30ms")
            assert isinstance(caught.value, ResultTimeout)
            assert caught.value.job_id == handle.id
            go.set()
            assert await handle.aresult("60s") == 1

    asyncio.run(main())


def test_the_result_of_a_dead_job_is_an_error_with_its_last_error(bed: Bed) -> None:
    app = bed.app()

    @app.job(max_retries=0)
    async def fail() -> None:
        raise ValueError("the reason")

    async def main() -> None:
        async with serving(app):
            handle = await fail.aenqueue()
            with pytest.raises(JobDead, match="gave up after 1 failure") as caught:
                await handle.aresult("60s")
            assert caught.value.error == "ValueError: the reason"
            with pytest.raises(
                InvalidTransition, match="only waiting and running jobs can be cancelled"
            ):
                await handle.acancel()

    asyncio.run(main())


def test_a_job_that_no_store_has_is_unknown(bed: Bed) -> None:
    app = bed.app()

    async def main() -> None:
        stranger = app.handle(uuid4())
        for attempt in (stranger.aresult, stranger.astate, stranger.ainfo, stranger.acancel):
            with pytest.raises(UnknownJob, match=str(stranger.id)):
                await attempt()

    asyncio.run(main())


def test_a_job_is_found_again_by_its_id(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def greet() -> dict[str, int]:
        return {"n": 1}

    async def main() -> None:
        async with serving(app):
            handle = await greet.aenqueue()
            assert isinstance(handle.id, UUID)
            assert await app.handle(handle.id).aresult("60s") == {"n": 1}
            assert await app.handle(str(handle.id)).aresult("60s") == {"n": 1}

    asyncio.run(main())
    with pytest.raises(ValueError, match="job_id must be a UUID"):
        app.handle("nonsense")


def test_a_waiting_job_is_cancelled_at_once_and_never_runs(bed: Bed) -> None:
    app = bed.app()
    ran: list[int] = []

    @app.job
    async def note(n: int) -> None:
        ran.append(n)

    async def main() -> None:
        pending, scheduled = await note.aenqueue(1), await note.using(delay="1h").aenqueue(2)
        assert await pending.acancel("moot") is State.CANCELLED
        assert await scheduled.acancel() is State.CANCELLED
        async with serving(app):
            await (await note.aenqueue(3)).aresult("60s")
        assert ran == [3]
        with pytest.raises(JobCancelled, match="cancelled: moot"):
            await pending.aresult()
        with pytest.raises(JobCancelled, match="cancelled by its producer"):
            await scheduled.aresult()

    asyncio.run(main())


def test_a_running_async_job_is_cancelled_where_it_awaits(bed: Bed) -> None:
    app = bed.app()
    began, cleaned = asyncio.Event(), asyncio.Event()

    @app.job
    async def hang(ctx: Context) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            assert ctx.cancelled
            cleaned.set()

    async def main() -> None:
        async with serving(app) as worker:
            handle = await hang.aenqueue()
            await began.wait()
            assert await handle.acancel("not wanted any more") is State.RUNNING
            job = await in_state(handle, State.CANCELLED)
            assert cleaned.is_set()
            assert (job.failures, job.attempt) == (0, 1)
        assert worker.left_behind == 0

    asyncio.run(main())


def test_the_reason_for_cancelling_a_running_job_is_kept(bed: Bed) -> None:
    app = bed.app()
    began = asyncio.Event()

    @app.job
    async def hang() -> None:
        began.set()
        await asyncio.Event().wait()

    async def main() -> None:
        async with serving(app):
            handle = await hang.aenqueue()
            await began.wait()
            await handle.acancel("not wanted any more")
            with pytest.raises(JobCancelled, match="not wanted any more"):
                await handle.aresult("60s")

    asyncio.run(main())


def test_a_running_sync_job_learns_of_its_cancellation_from_the_context(bed: Bed) -> None:
    app = bed.app()
    began, ended = threading.Event(), threading.Event()

    @app.job
    def hang(ctx: SyncContext, polite: bool) -> str:
        began.set()
        tick = threading.Event()
        while not tick.wait(0.005):
            if polite:
                try:
                    ctx.raise_if_cancelled()
                except BaseException:
                    ended.set()
                    raise
            elif ctx.cancelled:
                ended.set()
                return "cut short"
        return "never"

    async def main(polite: bool) -> None:
        began.clear()
        ended.clear()
        async with serving(app, threads=1):
            handle = await hang.aenqueue(polite)
            await until(began.is_set)
            assert await handle.acancel() is State.RUNNING
            job = await in_state(handle, State.CANCELLED, State.COMPLETED)
            await until(ended.is_set)
            if polite:
                assert job.state is State.CANCELLED

    asyncio.run(main(polite=True))
    asyncio.run(main(polite=False))


def test_a_sync_job_that_heeds_its_cancellation_is_not_left_behind(bed: Bed) -> None:
    """Prevents: a worker that thinks a thread is lost for ever although it came back at once."""
    app = bed.app()
    began = threading.Event()

    @app.job
    def hang(ctx: SyncContext) -> None:
        began.set()
        tick = threading.Event()
        while not tick.wait(0.005):
            ctx.raise_if_cancelled()

    async def main() -> None:
        async with serving(app, threads=1) as worker:
            handle = await hang.aenqueue()
            await until(began.is_set)
            await handle.acancel()
            await in_state(handle, State.CANCELLED)
            await until(lambda: worker.left_behind == 0, within=60)

    asyncio.run(main())


def test_a_job_that_takes_no_notice_of_its_cancellation_is_cancelled_all_the_same(
    bed: Bed,
) -> None:
    app = bed.app()
    began, go = threading.Event(), threading.Event()

    @app.job
    def deaf() -> None:
        began.set()
        go.wait(60)

    async def main() -> None:
        async with serving(app, threads=1) as worker:
            handle = await deaf.aenqueue()
            await until(began.is_set)
            await handle.acancel()
            await in_state(handle, State.CANCELLED)
            assert worker.left_behind == 1
            go.set()

    asyncio.run(main())


def test_a_finished_job_cannot_be_cancelled(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def quick() -> None: ...

    async def main() -> None:
        async with serving(app):
            handle = await quick.aenqueue()
            await handle.aresult("60s")
            with pytest.raises(InvalidTransition, match="is completed"):
                await handle.acancel()

    asyncio.run(main())


def test_a_result_of_another_type_than_declared_raises_a_windlass_error(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def liar() -> int:
        return "text"  # type: ignore[return-value]

    async def main() -> None:
        async with serving(app):
            handle = await liar.aenqueue()
            await in_state(handle, State.COMPLETED)
            with pytest.raises(WindlassError, match="int"):
                await handle.aresult("60s")

    asyncio.run(main())
