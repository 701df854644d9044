"""The class of what a handler raises decides what becomes of its job."""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

import pytest

from tests.support.app_on_store import (
    Bed,
    Clock,
    in_state,
    log_lines,
    on_embedded_stores,
    serving,
    until,
)
from windlass import (
    ConfigError,
    Context,
    ErrorClass,
    Handle,
    Job,
    Retry,
    State,
    StoreUnavailable,
    Windlass,
)
from windlass.testing import travel


class Down(Exception):
    status = 503


class Invalid(ValueError):
    pass


async def attempted(handle: Handle[Any], attempts: int) -> Job:
    """Wait until a job has so many attempts behind it, and return it as it is then."""

    async def is_so() -> bool:
        return len((await handle.ainfo()).history) >= attempts

    await until(is_so)
    return await handle.ainfo()


# -- system ----------------------------------------------------------------------------------------


def test_a_job_outlives_an_outage_uncharged_and_tells_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = Windlass("memory://")
    app.classify(ErrorClass.SYSTEM, Down)

    @app.job(max_retries=0)
    async def pay(ctx: Context) -> str:
        if ctx.attempt <= 5:
            raise Down("the gateway does not answer")
        return "paid"

    with travel(app) as t:
        handle = pay.enqueue()
        t.run_due()
        for n, wait in enumerate((5, 10, 20, 40, 80), start=1):
            job = t.assert_enqueued(handle, due=wait)
            assert (job.state, job.reason) == (State.SCHEDULED, "system error")
            assert (job.failures, job.crashes, job.attempt) == (0, 0, n)
            assert job.error is not None
            assert str(job.error).endswith("Down: the gateway does not answer")
            assert job.history[-1].outcome == "system error"
            assert job.history[-1].error == job.error
            assert job.error.error_class is ErrorClass.SYSTEM
            t.advance(wait)
        # The breaker that the kind has of its own opened, and lets it try again after its cooldown.
        assert log_lines(caplog, "breaker.opened")
        t.assert_completed(handle, result="paid")
    lines = log_lines(caplog, "job.snoozed")
    assert [(line["reason"], line["error_class"]) for line in lines] == [
        ("system error", "system")
    ] * 5
    assert {
        record.levelname
        for record in caplog.records
        if isinstance(record.msg, dict) and record.msg.get("event") == "job.snoozed"
    } == {"WARNING"}


@on_embedded_stores
def test_an_unreachable_windlass_store_is_a_system_error(bed: Bed) -> None:
    app = bed.app()

    @app.job(max_retries=0)
    def fan_out() -> None:
        raise StoreUnavailable("the other store is away")

    async def main() -> None:
        async with serving(app):
            job = await in_state(await fan_out.aenqueue(), State.SCHEDULED)
            assert (job.failures, job.reason) == (0, "system error")

    asyncio.run(main())


@on_embedded_stores
def test_a_job_that_waits_for_a_system_ends_with_its_expiry(bed: Bed) -> None:
    clock = Clock()
    app = bed.app(store=bed.store(clock=clock))
    app.classify(ErrorClass.SYSTEM, Down)

    @app.job
    async def pay() -> None:
        raise Down

    async def main() -> None:
        async with serving(app, lease="1h"):
            handle = await pay.using(expires="30m").aenqueue()
            await in_state(handle, State.SCHEDULED)
            clock.advance(minutes=30)
            job = await in_state(handle, State.CANCELLED)
            assert job.reason is not None
            assert "expired" in job.reason

    asyncio.run(main())


@on_embedded_stores
def test_a_run_that_hangs_is_charged_although_timeouts_are_system_errors(bed: Bed) -> None:
    app = bed.app()
    app.classify(ErrorClass.SYSTEM, TimeoutError)

    @app.job(timeout="50ms", max_retries=0)
    async def hang() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        async with serving(app):
            assert (await in_state(await hang.aenqueue(), State.DEAD)).failures == 1

    asyncio.run(main())


# -- permanent -------------------------------------------------------------------------------------


@on_embedded_stores
def test_a_permanent_error_makes_its_job_dead_at_once(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    app = bed.app()
    app.classify(ErrorClass.PERMANENT, ValueError)

    async def fail() -> None:
        raise Invalid("no such order")

    @app.job(max_retries=9)
    async def check() -> None:
        await fail()

    @app.job(max_retries=9)
    async def several() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())

    async def main() -> None:
        async with serving(app):
            for handler in (check, several):
                job = await in_state(await handler.aenqueue(), State.DEAD)
                assert (job.failures, job.reason) == (1, "permanent error")

    asyncio.run(main())
    assert {line["error_class"] for line in log_lines(caplog, "job.dead")} == {"permanent"}


# -- whose word counts -----------------------------------------------------------------------------


@on_embedded_stores
def test_a_kind_can_see_errors_in_its_own_way(bed: Bed) -> None:
    app = bed.app()
    app.classify(ErrorClass.SYSTEM, Down)

    @app.job(max_retries=0)
    async def as_all() -> None:
        raise Down

    @app.job(max_retries=0, errors={Exception: ErrorClass.TRANSIENT})
    async def by_class() -> None:
        raise Down

    @app.job(retry=Retry(on={Down: Retry.never()}))
    async def by_policy() -> None:
        raise Down

    async def main() -> None:
        async with serving(app):
            assert (await in_state(await as_all.aenqueue(), State.SCHEDULED)).failures == 0
            for handler in (by_class, by_policy):
                job = await in_state(await handler.aenqueue(), State.DEAD)
                assert (job.failures, job.reason) == (1, "gave up after 1 failure")

    asyncio.run(main())


@on_embedded_stores
def test_a_function_decides_by_what_is_in_the_error(bed: Bed) -> None:
    app = bed.app()

    def by_status(error: Down) -> ErrorClass | None:
        return {503: ErrorClass.SYSTEM, 404: ErrorClass.PERMANENT}.get(error.status)

    app.classify(by_status, Down)

    @app.job
    async def fetch(status: int) -> None:
        error = Down()
        error.status = status
        raise error

    async def main() -> None:
        async with serving(app):
            for status, state, failures in (
                (503, State.SCHEDULED, 0),
                (404, State.DEAD, 1),
                (500, State.SCHEDULED, 1),
            ):
                job = await in_state(await fetch.aenqueue(status), State.SCHEDULED, State.DEAD)
                assert (job.state, job.failures) == (state, failures)

    asyncio.run(main())


@on_embedded_stores
@pytest.mark.parametrize("where", ["app", "kind"])
def test_a_function_that_raises_says_nothing(
    bed: Bed, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = bed.app()

    def broken(error: BaseException) -> NoReturn:
        raise AttributeError("no status")

    if where == "app":
        app.classify(broken, Down)

    @app.job(errors={Down: broken} if where == "kind" else {})
    async def fail() -> None:
        raise Down

    async def main() -> None:
        async with serving(app):
            assert (await in_state(await fail.aenqueue(), State.SCHEDULED)).failures == 1

    asyncio.run(main())
    assert len(log_lines(caplog, "settle.failed")) == 1


# -- what is refused -------------------------------------------------------------------------------


@on_embedded_stores
def test_contradictory_error_classes_are_refused(bed: Bed) -> None:
    app = bed.app()
    app.classify(ErrorClass.SYSTEM, Down)
    app.classify(ErrorClass.SYSTEM, Down, Invalid)
    with pytest.raises(ConfigError, match="Down is classified twice, and differently"):
        app.classify(ErrorClass.PERMANENT, Down)
    with pytest.raises(ConfigError, match="'pay': Down cannot be both in errors= and in retry="):

        @app.job(errors={Down: ErrorClass.SYSTEM}, retry=Retry(on={Down: Retry.network()}))
        async def pay() -> None: ...


@on_embedded_stores
def test_values_that_are_no_error_class_or_exception_are_refused(bed: Bed) -> None:
    app = bed.app()
    wrong: Any = app.classify
    with pytest.raises(ConfigError, match="errors must map exception classes"):
        wrong(Down, ErrorClass.SYSTEM)
    with pytest.raises(ConfigError, match="got 'system'"):
        wrong("system", Down)
    with pytest.raises(ConfigError, match="got None"):

        @app.job(errors={Down: None})  # type: ignore[dict-item]
        async def pay() -> None: ...
