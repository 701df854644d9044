"""Claims that fail while others are under way: the worker reports the error of each of them."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.app_on_store import Bed, Through, log_lines, serving, until
from windlass import Windlass
from windlass.core.errors import WriteUncertain

pytestmark = pytest.mark.parametrize("bed", ["memory"], indirect=True)
AHEAD = 2
"""Number of claims that a worker has under way at once."""
ERRORS = pytest.mark.parametrize("error", [WriteUncertain, RuntimeError])


class LosesAnswers(Through):
    """A store that answers the first claims, and loses the answers to the next ones."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.left = 3
        self.under_way = 0
        self.error: Callable[[str], Exception] | None = None
        self.cut = asyncio.Event()

    async def claim(self, *given: Any, **named: Any) -> Any:
        if self.left == 0 and self.error is None:
            self.under_way += 1
            await self.cut.wait()
            assert self.error is not None
            raise self.error("no answer")
        self.left -= self.left > 0
        return await self.inner.claim(*given, **named)

    def fail(self, error: Callable[[str], Exception]) -> None:
        self.error = error
        self.cut.set()


@contextmanager
def unretrieved() -> Iterator[list[str]]:
    """Collect what asyncio reports about errors that no code has asked for."""
    errors: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: errors.append(str(context["message"])))
    yield errors
    gc.collect()
    loop.set_exception_handler(None)


async def many_jobs(app: Windlass) -> None:
    @app.job
    async def noop() -> None: ...

    await app.aenqueue_many(noop.draft() for _ in range(50))


def failures(caplog: pytest.LogCaptureFixture) -> int:
    """Return the number of failures that the claimer has logged."""
    raised = [line for line in log_lines(caplog, "service.failed") if line["service"] == "claimer"]
    return len(raised) + len(log_lines(caplog, "claim.failed"))


@ERRORS
def test_of_two_claims_that_fail_at_once_both_errors_are_reported(
    bed: Bed, caplog: pytest.LogCaptureFixture, error: type[Exception]
) -> None:
    """Prevents "Task exception was never retrieved" when the connection of both is cut."""
    caplog.set_level("DEBUG", "windlass")
    store = LosesAnswers(bed.store())
    app = bed.app(store=store)

    async def main() -> None:
        await many_jobs(app)
        with unretrieved() as errors:
            async with serving(app, claim_size=1) as worker:
                await until(lambda: store.under_way == AHEAD)
                store.fail(error)
                await until(lambda: worker.processed == 50)
        assert errors == []

    asyncio.run(main())
    assert failures(caplog) == AHEAD


@ERRORS
def test_claims_that_fail_while_the_worker_stops_are_reported(
    bed: Bed, caplog: pytest.LogCaptureFixture, error: type[Exception]
) -> None:
    caplog.set_level("DEBUG", "windlass")
    store = LosesAnswers(bed.store())
    app = bed.app(store=store)

    async def main() -> None:
        await many_jobs(app)
        with unretrieved() as errors:
            async with serving(app, claim_size=1) as worker:
                await until(lambda: store.under_way == AHEAD)
                worker.stop()
                await until(lambda: worker.shutdown.waits_for.endswith("the claims under way"))
                store.fail(error)
        assert errors == []

    asyncio.run(main())
    assert failures(caplog) == AHEAD


def test_claims_that_fail_after_the_shutdown_are_reported(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "windlass")
    store = LosesAnswers(bed.store())
    app = bed.app(store=store)

    async def main() -> None:
        await many_jobs(app)
        with unretrieved() as errors:
            async with serving(app, claim_size=1) as worker:
                await until(lambda: store.under_way == AHEAD)
                worker.stop()
                worker.stop()  # The second time it hurries, and does not wait for claims.
            store.fail(WriteUncertain)
            await until(lambda: failures(caplog) >= AHEAD, within=5)
        assert errors == []

    asyncio.run(main())
