"""What a handler returns or raises decides what becomes of its job."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests.support.app_on_store import Bed, Clock, charged, in_state, log_lines, serving
from windlass import Cancel, Context, PermanentError, Retry, RetryAfter, Snooze, State

MINUTE = timedelta(minutes=1)


class TooMany(Exception):
    pass


def test_a_retry_at_a_chosen_time_is_charged(bed: Bed) -> None:
    clock = Clock()
    app = bed.app(store=bed.store(clock=clock))

    @app.job(max_retries=2)
    async def poll(ctx: Context, absolute: bool) -> str:
        if ctx.attempt == 3:
            return "ready"
        raise RetryAfter(clock.now + 10 * MINUTE if absolute else "10m", "not ready")

    async def main() -> None:
        async with serving(app, lease="1h"):
            for absolute in (True, False):
                handle = await poll.aenqueue(absolute)
                for failures in (1, 2):
                    job = await charged(handle, failures)
                    assert (job.state, job.due_at) == (State.SCHEDULED, clock.now + 10 * MINUTE)
                    assert job.error is not None
                    assert "not ready" in job.error.message
                    clock.advance(minutes=10)
                assert await handle.aresult("60s") == "ready"

    asyncio.run(main())


def test_a_retry_at_a_chosen_time_counts_against_max_retries(bed: Bed) -> None:
    app = bed.app()

    @app.job(max_retries=1)
    async def poll() -> None:
        raise RetryAfter(0)

    async def main() -> None:
        async with serving(app):
            job = await in_state(await poll.aenqueue(), State.DEAD)
            assert (job.failures, job.attempt) == (2, 2)

    asyncio.run(main())


def test_a_snooze_is_not_charged(bed: Bed) -> None:
    clock = Clock()
    app = bed.app(store=bed.store(clock=clock))

    @app.job(max_retries=0)
    async def wait_for_it(ctx: Context) -> str | Snooze:
        return "done" if ctx.attempt > 1 else Snooze("1h")

    async def main() -> None:
        async with serving(app, lease="1h"):
            handle = await wait_for_it.aenqueue()
            job = await in_state(handle, State.SCHEDULED)
            assert (job.failures, job.attempt, job.reason) == (0, 1, "snoozed")
            assert job.due_at == clock.now + timedelta(hours=1)
            assert [attempt.outcome for attempt in job.history] == ["snoozed"]
            await app.control.aretry(handle.id)
            assert await handle.aresult("60s") == "done"

    asyncio.run(main())


def test_a_job_can_cancel_itself_with_a_reason(bed: Bed) -> None:
    app = bed.app()

    @app.job
    def ship(order: int) -> Cancel:
        return Cancel(f"order {order} was withdrawn")

    async def main() -> None:
        async with serving(app):
            job = await in_state(await ship.aenqueue(7), State.CANCELLED)
            assert (job.reason, job.failures) == ("order 7 was withdrawn", 0)

    asyncio.run(main())


def test_a_permanent_error_kills_the_job_at_once(bed: Bed) -> None:
    app = bed.app()

    @app.job(max_retries=9)
    async def fail() -> None:
        raise PermanentError("no such customer")

    async def main() -> None:
        async with serving(app):
            job = await in_state(await fail.aenqueue(), State.DEAD)
            assert (job.failures, job.reason) == (1, "permanent error")
            assert job.error is not None
            assert job.error.message == "no such customer"

    asyncio.run(main())


def test_the_n_th_failure_waits_twice_as_long_as_the_one_before(bed: Bed) -> None:
    clock = Clock()
    app = bed.app(store=bed.store(clock=clock))

    @app.job(max_retries=3)
    async def fail() -> None:
        raise ConnectionError("down")

    async def main() -> None:
        async with serving(app, lease="1h"):
            handle = await fail.aenqueue()
            for failures, longest in ((1, 1), (2, 2), (3, 4)):
                job = await charged(handle, failures)
                assert job.state is State.SCHEDULED
                wait = (job.due_at - clock.now).total_seconds()
                assert longest / 2 <= wait <= longest
                clock.now = job.due_at
            dead = await in_state(handle, State.DEAD)
            assert (dead.failures, dead.reason) == (4, "gave up after 4 failures")
            assert [attempt.number for attempt in dead.history] == [1, 2, 3, 4]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("retry", "longest"),
    [
        (Retry.network(), 1),
        (Retry.rate_limit(), 5),
        (Retry.external_api(), 2),
        (Retry(initial="1m"), 60),
    ],
    ids=["network", "rate_limit", "external_api", "waiting"],
)
def test_the_presets_decide_how_long_a_failure_waits(
    bed: Bed, retry: Retry, longest: float
) -> None:
    clock = Clock()
    app = bed.app(store=bed.store(clock=clock))

    @app.job(retry=retry)
    async def fail() -> None:
        raise ConnectionError("down")

    async def main() -> None:
        async with serving(app, lease="1h"):
            job = await in_state(await fail.aenqueue(), State.SCHEDULED)
            assert longest / 2 <= (job.due_at - clock.now).total_seconds() <= longest

    asyncio.run(main())


def test_exceptions_can_have_policies_of_their_own(bed: Bed) -> None:
    clock = Clock()
    app = bed.app(store=bed.store(clock=clock))

    @app.job(retry=Retry(on={ValueError: Retry.invalid_input(), TooMany: Retry.rate_limit()}))
    async def fail(how: str) -> None:
        raise {"bad": UnicodeError("bad"), "many": TooMany()}[how]

    async def main() -> None:
        async with serving(app, lease="1h"):
            assert (await in_state(await fail.aenqueue("bad"), State.DEAD)).failures == 1
            many = await in_state(await fail.aenqueue("many"), State.SCHEDULED)
            assert (many.due_at - clock.now).total_seconds() >= 2.5

    asyncio.run(main())


def test_a_veto_decides_whether_an_error_is_retried(bed: Bed) -> None:
    app = bed.app()

    @app.job(retry=Retry(when=lambda error: "again" in str(error), initial="1h"))
    async def fail(text: str) -> None:
        raise OSError(text)

    async def main() -> None:
        async with serving(app):
            assert (await in_state(await fail.aenqueue("no"), State.DEAD)).failures == 1
            await in_state(await fail.aenqueue("again"), State.SCHEDULED)

    asyncio.run(main())


def test_a_veto_that_raises_is_no_veto(bed: Bed, caplog: pytest.LogCaptureFixture) -> None:
    app = bed.app()

    def broken(error: BaseException) -> bool:
        raise RuntimeError("the policy itself is wrong")

    @app.job(retry=Retry(when=broken, initial="1h"))
    async def fail() -> None:
        raise OSError("no")

    @app.job
    async def fine() -> int:
        return 1

    async def main() -> None:
        async with serving(app):
            job = await in_state(await fail.aenqueue(), State.SCHEDULED)
            assert job.failures == 1
            assert await (await fine.aenqueue()).aresult("60s") == 1

    asyncio.run(main())
    assert len(log_lines(caplog, "settle.failed")) == 1


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration])
@pytest.mark.parametrize("pool", ["loop", "threads"])
def test_no_exception_takes_the_worker_down(
    bed: Bed, error: type[BaseException], pool: str
) -> None:
    app = bed.app()

    @app.job(max_retries=0)
    async def on_the_loop() -> None:
        raise error("stop everything")

    @app.job(max_retries=0)
    def in_a_thread() -> None:
        raise error("stop everything")

    @app.job
    async def fine() -> int:
        return 1

    async def main() -> None:
        async with serving(app):
            handler = on_the_loop if pool == "loop" else in_a_thread
            job = await in_state(await handler.aenqueue(), State.DEAD)
            assert job.error is not None
            assert "stop everything" in job.error.traceback
            assert await (await fine.aenqueue()).aresult("60s") == 1

    asyncio.run(main())


def test_an_error_keeps_its_cause_chain_the_attempt_and_the_worker(bed: Bed) -> None:
    app = bed.app()

    @app.job(max_retries=0)
    async def fail() -> None:
        try:
            dict[str, int]()["missing"]
        except KeyError as error:
            raise ValueError("outer") from error

    async def main() -> None:
        async with serving(app) as worker:
            job = await in_state(await fail.aenqueue(), State.DEAD)
            assert job.error is not None
            assert "KeyError" in job.error.traceback
            assert "outer" in job.error.traceback
            (attempt,) = job.history
            assert (attempt.number, attempt.worker, attempt.outcome) == (1, worker.id, "failed")
            assert attempt.error == job.error

    asyncio.run(main())


def test_a_result_that_cannot_be_stored_kills_the_job_with_the_reason(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def odd() -> object:
        return object()

    @app.job
    async def nan() -> float:
        return float("nan")

    async def main() -> None:
        async with serving(app):
            for handler in (odd, nan):
                job = await in_state(await handler.aenqueue(), State.DEAD)
                assert job.error is not None
                assert "result of" in job.error.message

    asyncio.run(main())


def test_a_payload_that_came_by_another_way_and_does_not_fit_never_reaches_the_handler(
    bed: Bed,
) -> None:
    store = bed.store()
    writer, reader = bed.app(store=store), bed.app(store=store)
    ran: list[object] = []

    @writer.job(name="pay")
    async def wrong(amount: str) -> None: ...

    @reader.job(name="pay")
    async def pay(amount: int) -> None:
        ran.append(amount)

    async def main() -> None:
        handle = await wrong.aenqueue("much")
        async with serving(reader):
            job = await in_state(handle, State.DEAD)
            assert job.reason is not None
            assert "field 'amount'" in job.reason
        assert ran == []

    asyncio.run(main())
