"""Which ends of runs count for a breaker, and which do not."""

from __future__ import annotations

import asyncio
import importlib
import sys

import pytest

from tests.support.app_on_store import Bed, in_state, on_embedded_stores, serving
from tests.worker.policies.breaker_gateway import Down, becomes, status_of
from windlass import Breaker, ErrorClass, State, Windlass
from windlass.core.policies.breaker import Rule
from windlass.core.policies.breaker_record import BreakerState, BreakerStatus, Failure, Success
from windlass.testing import travel
from windlass.worker.policies.breaker_view import BreakerView

pytestmark = pytest.mark.stores("postgres")


def test_system_errors_open_a_breaker_of_the_kinds_own() -> None:
    app = Windlass("memory://")
    app.classify(ErrorClass.SYSTEM, Down)

    @app.job
    async def charge() -> None:
        raise Down

    @app.job
    async def mail(*, fail: bool) -> None:
        if fail:
            raise ValueError("no system error")

    with travel(app, concurrency=1) as t:
        app.enqueue_many(mail.using(max_retries=0).draft(fail=True) for _ in range(9))
        app.enqueue_many(charge.draft() for _ in range(12))
        mail.enqueue(fail=False)
        t.run_due()
        (status,) = app.control.breakers()
        assert (status.name, status.state) == ("kind:charge", BreakerState.OPEN)
        assert status.kinds == ("charge",)
        t.assert_completed(mail, count=1)
        t.assert_dead(mail, count=9)
        assert {job.failures for job in t.jobs(charge)} == {0}
        assert len(t.jobs(charge, State.PENDING)) == 12 - 5


def test_errors_that_do_not_count_neither_open_nor_close_a_breaker() -> None:
    app = Windlass("memory://")

    @app.job(breaker=Breaker("stripe", failures=1, on=Down), max_retries=0)
    async def charge(*, down: bool) -> None:
        raise Down if down else ValueError

    with travel(app) as t:
        app.enqueue_many(charge.draft(down=False) for _ in range(3))
        t.run_due()
        t.assert_dead(charge, count=3)
        assert asyncio.run(status_of(app)).state is BreakerState.CLOSED
        charge.enqueue(down=True)
        t.run_due()
        assert asyncio.run(status_of(app)).state is BreakerState.OPEN


@on_embedded_stores
def test_a_timeout_counts_as_a_failure(bed: Bed) -> None:
    app = bed.app()

    @app.job(breaker=Breaker("stripe", failures=1), timeout="50ms", max_retries=0)
    async def hang() -> None:
        await asyncio.sleep(60)

    async def main() -> None:
        async with serving(app):
            await hang.aenqueue()
            assert "TimeoutError in job" in (await becomes(app, BreakerState.OPEN)).why

    asyncio.run(main())


def test_a_success_between_them_makes_failures_no_row() -> None:
    app = Windlass("memory://")

    @app.job(breaker=Breaker("stripe", failures=2), max_retries=0)
    async def charge(*, down: bool) -> None:
        if down:
            raise Down

    with travel(app, concurrency=1) as t:
        app.enqueue_many(charge.draft(down=down) for _ in range(3) for down in (True, False))
        t.run_due()
        t.assert_dead(charge, count=3)
        t.assert_completed(charge, count=3)
        assert asyncio.run(status_of(app)).changes == 0
        app.enqueue_many(charge.draft(down=True) for _ in range(2))
        t.run_due()
        assert asyncio.run(status_of(app)).state is BreakerState.OPEN


@on_embedded_stores
def test_a_kind_that_sees_an_error_in_its_own_way_needs_no_breaker_for_it(bed: Bed) -> None:
    """Prevents: every kind of an app looks at breakers, for an error that is none to it."""
    app = bed.app()
    app.classify(ErrorClass.SYSTEM, Down)

    @app.job(errors={Exception: ErrorClass.TRANSIENT})
    async def charge() -> None:
        pass

    @app.job(errors={Down: lambda _error: None})
    async def refund() -> None:
        pass

    @app.job(errors={ValueError: ErrorClass.PERMANENT})
    async def check() -> None:
        pass

    assert set(app.registry.rules()) == {"refund", "check"}


ISOLATED = """
from windlass import Breaker, Windlass

app = Windlass()


class Down(Exception):
    pass


class FarDown(Down):
    pass


@app.job(isolate=True, max_retries=0, breaker=Breaker("stripe", failures=1, on=Down))
async def charge(down: bool):
    raise FarDown if down else ValueError
"""


@pytest.mark.parametrize("bed", ["sqlite"], indirect=True)
def test_failures_of_isolated_jobs_count_for_the_breaker(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exception itself cannot leave its process, so that is where it is looked at."""
    (bed.directory / "isolated_shop.py").write_text(ISOLATED)
    monkeypatch.syspath_prepend(bed.directory)
    shop = importlib.import_module("isolated_shop")
    monkeypatch.setitem(sys.modules, "isolated_shop", shop)
    shop.app.configure(url=bed.url)

    async def main() -> None:
        async with serving(shop.app):
            await in_state(await shop.charge.aenqueue(down=False), State.DEAD, within=30)
            assert (await status_of(shop.app)).state is BreakerState.CLOSED
            await shop.charge.aenqueue(down=True)
            assert "FarDown in job" in (await becomes(shop.app, BreakerState.OPEN)).why
        await shop.app.aclose()

    asyncio.run(main())


def test_a_success_counts_while_a_failure_is_being_recorded() -> None:
    """Else it was forgotten, and the next failure made a row of two where there was none."""
    watch = BreakerView(Rule(name="stripe", failures=2), ["charge"])
    watch.learn(BreakerStatus(name="stripe"), "w")
    assert watch.failed("Down", probe=False)
    told = watch.take_news("w", 0.0)
    assert watch.succeeded(probe=False)
    watch.reported(told)
    watch.learn(BreakerStatus(name="stripe", failures=1), "w")
    assert watch.is_closed
    assert [type(event) for event in watch.events] == [Success]


def test_a_success_counts_before_anybody_has_looked() -> None:
    watch = BreakerView(Rule(name="stripe", failures=2), ["charge"])
    assert watch.failed("Down", probe=False)
    assert watch.succeeded(probe=False)
    assert [type(event) for event in watch.events] == [Failure, Success]
