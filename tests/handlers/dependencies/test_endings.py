"""Dependencies are closed however a run ends, and what fails there fails the run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.handlers.dependencies.sessions import (
    Session,
    dies,
    get_blocking_session,
    get_session,
    heard,
)
from tests.support.app_on_store import Bed, in_state, on_embedded_stores, serving, until
from windlass import Inject, Snooze, State
from windlass.testing import travel

pytestmark = on_embedded_stores


@pytest.mark.parametrize("is_async", [True, False])
def test_a_failed_run_raises_its_error_in_its_dependencies(bed: Bed, *, is_async: bool) -> None:
    app = bed.app()

    async def fail(session: Session = Inject(get_session)) -> None:
        raise LookupError

    def fail_in_thread(session: Session = Inject(get_session)) -> None:
        raise LookupError

    dies(app, app.job(max_retries=0)(fail if is_async else fail_in_thread))
    assert heard == ["url", "open", "roll back for LookupError", "close"]


def test_a_dependency_that_catches_the_error_does_not_make_the_run_succeed(bed: Bed) -> None:
    app = bed.app()

    async def forgiving() -> AsyncIterator[int]:
        try:
            yield 1
        except LookupError:
            heard.append("caught")

    def forgiving_too() -> Iterator[int]:
        try:
            yield 1
        except LookupError:
            heard.append("caught, too")

    @app.job(max_retries=0)
    def fail(a: int = Inject(forgiving), b: int = Inject(forgiving_too)) -> None:
        raise LookupError("no such order")

    with travel(app) as t:
        fail.enqueue()
        t.run_due()
        error = t.assert_dead(fail, error=LookupError).error
    assert error is not None
    assert error.message == "no such order"
    assert "yield" not in error.traceback
    assert heard == ["caught, too", "caught"]


@pytest.mark.parametrize("is_async", [True, False])
def test_a_failure_after_the_yield_fails_the_run_before_it_is_recorded(
    bed: Bed, *, is_async: bool
) -> None:
    app = bed.app()

    async def committing() -> AsyncIterator[int]:
        yield 1
        raise OSError("the commit failed")

    async def work(a: Session = Inject(get_session), b: int = Inject(committing)) -> None: ...

    def work_in_thread(a: Session = Inject(get_session), b: int = Inject(committing)) -> None: ...

    handler = app.job(max_retries=0)(work if is_async else work_in_thread)
    with travel(app) as t:
        handler.enqueue()
        t.run_due()
        error = t.assert_dead(handler, error=OSError).error
    assert error is not None
    assert error.message == "the commit failed"
    # What was opened before it hears of it.
    assert heard == ["url", "open", "roll back for OSError", "close"]


def test_a_dependency_that_cannot_be_opened_fails_the_run_and_closes_the_others(bed: Bed) -> None:
    app = bed.app()

    def down() -> int:
        raise OSError("no route")

    @app.job(max_retries=0)
    async def work(a: Session = Inject(get_session), b: int = Inject(down)) -> None:
        heard.append("run")

    dies(app, work)
    assert heard == ["url", "open", "roll back for OSError", "close"]


def test_a_snooze_is_no_failure_for_a_dependency(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def work(a: Session = Inject(get_session)) -> Snooze:
        return Snooze("1h")

    with travel(app) as t:
        work.enqueue()
        t.run_due()
    assert heard == ["url", "open", "commit", "close"]


@pytest.mark.parametrize("sort", ["async", "blocking"])
def test_a_run_whose_time_is_over_closes_its_dependencies(bed: Bed, sort: str) -> None:
    app = bed.app()
    dependency: Any = get_session if sort == "async" else get_blocking_session

    @app.job(max_retries=0, timeout="50ms")
    async def slow(session: Session = Inject(dependency)) -> None:
        await asyncio.sleep(600)

    dies(app, slow)
    assert heard[-1] == "close"
    assert "commit" not in heard


def test_a_blocking_dependency_that_opens_too_late_is_closed_all_the_same(bed: Bed) -> None:
    app, late = bed.app(), threading.Event()

    def slow() -> Iterator[int]:
        assert late.wait(60)
        try:
            yield 1
        except asyncio.CancelledError:
            heard.append("roll back")
            raise

    @app.job(max_retries=0, timeout="50ms", grace="60s")
    async def work(value: int = Inject(slow)) -> None: ...

    async def main() -> None:
        async with serving(app):
            handle = await work.aenqueue()
            await until(lambda: any(each.cancelling() for each in asyncio.all_tasks()))
            late.set()
            await in_state(handle, State.DEAD)

    asyncio.run(main())
    assert heard == ["roll back"]
