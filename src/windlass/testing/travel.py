"""Owns time travel: an app on a fresh memory store whose clock only the test moves."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, TypeVar

from msgspec.structs import replace

from windlass.app import Windlass
from windlass.app.loop_thread import blocking
from windlass.core.errors import ConfigError
from windlass.core.jobs.job import Enqueued, NewJob
from windlass.core.jobs.states import WAITING
from windlass.core.records import News
from windlass.core.values.durations import Duration, duration, human
from windlass.store.memory import MemoryStore
from windlass.testing.assertions import JobAssertions
from windlass.testing.manual_worker import ManualWorker

T = TypeVar("T")
TravelT = TypeVar("TravelT", bound="Travel")
__tracebackhide__ = True
"""Makes pytest leave out these frames: a failure is shown in the test."""
START = datetime(2030, 1, 1, 12, tzinfo=UTC)
"""The default begin of a travel: a Tuesday, at noon."""


class _Clock:
    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now


class _TravelStore(MemoryStore):
    """A memory store without bounds, which prunes nothing by itself.

    With `tx_at_once`, jobs enqueued in a user's transaction appear at once; else they are refused.
    """

    capabilities = replace(MemoryStore.capabilities, stands_still=True)

    def __init__(self, clock: _Clock, *, tx_at_once: bool) -> None:
        super().__init__(size=sys.maxsize, kept=None, clock=clock)
        self._tx_at_once = tx_at_once

    def enqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        self._check(transaction)
        return self.enqueue_blocking(jobs, timedelta(0))

    async def aenqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        self._check(transaction)
        return await self.enqueue(jobs)

    def send_in(self, transaction: object, news: Sequence[News]) -> None:
        self._check(transaction)
        self.send_blocking(news, timedelta(0))

    async def asend_in(self, transaction: object, news: Sequence[News]) -> None:
        self._check(transaction)
        await self.send(news)

    def _check(self, transaction: object) -> None:
        del transaction
        if not self._tx_at_once:
            raise ConfigError(
                "travel() keeps jobs in memory, outside any transaction; with travel(app, "
                "tx_at_once=True) they are enqueued at once, committed or not"
            )


@contextmanager
def travel(
    app: Windlass,
    *,
    at: datetime = START,
    follow: Callable[[datetime], object] = lambda _: None,
    tx_at_once: bool = False,
    **flags: Any,
) -> Iterator[Travel]:
    """Put an app on an empty memory store, whose clock stands still, for the length of a test.

    The clock begins `at` a time; `follow` is called with it whenever it is moved, so that another
    library can set the clock of your own code. With `tx_at_once`, jobs enqueued in a transaction
    appear at once, whether it is committed or not.

    Flags are a worker's (`concurrency=1`, `queues="mail"`). Unless they say otherwise there is one
    thread, so that `def` handlers run one after another.

    Raises:
        ValueError: the time has no time zone.

    Example:
        `with travel(app) as t: remind.enqueue("ada"); t.advance("1d"); t.assert_completed(remind)`
    """
    with travel_as(Travel, app, at=at, follow=follow, tx_at_once=tx_at_once, **flags) as t:
        yield t


@contextmanager
def travel_as(
    travel_class: type[TravelT],
    app: Windlass,
    *,
    at: datetime = START,
    follow: Callable[[datetime], object] = lambda _: None,
    tx_at_once: bool = False,
    **flags: Any,
) -> Iterator[TravelT]:
    """Do what `travel` does, with a subclass of `Travel`."""
    if at.tzinfo is None:
        raise ValueError(f"a time must have a time zone, got {at.isoformat()}")
    clock = _Clock(at.astimezone(UTC))
    store = _TravelStore(clock, tx_at_once=tx_at_once)
    follow(clock.now)
    # With a factory: a loop made by the runner would become the thread's current one.
    runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
    with app.on_store(store), closing(runner):
        yield travel_class(app, store, clock, runner, follow, {"threads": 1, **flags})


def travel_fixture(app: Windlass, **options: Any) -> Any:
    """Return a pytest fixture of a `travel` in this app: `t = travel_fixture(app)` in conftest.py.

    It takes what `travel` takes.
    """
    import pytest

    @pytest.fixture
    def travelling() -> Iterator[Travel]:
        with travel(app, **options) as t:
            yield t

    return travelling


class Travel(JobAssertions):
    """The clock of a test: moving it runs all jobs that become due meanwhile.

    Each call is the life of a worker: hooks are called and provided values opened before it, and
    closed after it. The app's own handlers run, in the parts of a real worker. The forms that begin
    with `a` are for coroutines, and run the handlers in their event loop.
    """

    _written: ClassVar[str] = "t"

    def __init__(
        self,
        app: Windlass,
        store: MemoryStore,
        clock: _Clock,
        runner: asyncio.Runner,
        follow: Callable[[datetime], object],
        flags: dict[str, Any],
    ) -> None:
        super().__init__(app, store)
        self._clock = clock
        self._runner = runner
        self._follow = follow
        self._flags = flags

    @property
    def now(self) -> datetime:
        """The current time of the store."""
        return self._clock.now

    async def arun_due(self) -> int:
        """Run the jobs that are due now, and those that they enqueue; return the number of runs.

        The clock stands still, so a retry or a snooze stays for later.
        """
        async with self._worker() as worker:
            return await worker.work()

    run_due = blocking(arun_due)

    async def aadvance(self, span: Duration) -> int:
        """Let time pass, and run each job when it is due; return the number of runs.

        Raises: ValueError: the span is not a duration, or is negative.
        """
        return await self.aadvance_to(self.now + duration(span))

    advance = blocking(aadvance)

    async def aadvance_to(self, at: datetime) -> int:
        """Let time pass until a moment, as `aadvance` does.

        Raises:
            ValueError: the time is in the past, or has no time zone.
        """
        if at.tzinfo is None:
            raise ValueError(f"a time must have a time zone, got {at.isoformat()}")
        if at < self.now:
            raise ValueError(
                f"time can only move forward from {self.now.isoformat()}, got {at.isoformat()}"
            )
        async with self._worker() as worker:
            runs = await worker.work()
            while (due := await worker.next_at()) is not None and due < at:
                runs += await self._move(worker, due)
            return runs + await self._move(worker, at)

    advance_to = blocking(aadvance_to)

    async def arun_all(self, within: Duration = "365d") -> int:
        """Let time pass until no job waits for its time any more; return the number of runs.

        Schedules tick meanwhile, but are not waited for; nor are events.

        Raises: AssertionError: jobs still wait after all that time.
        """
        end = self.now + duration(within)
        async with self._worker() as worker:
            runs = await worker.work()
            while (due := await worker.next_at(alarms=False)) is not None:
                if due > end:
                    raise AssertionError(self._still_waiting(duration(within)))
                runs += await self._move(worker, await worker.next_at() or due)
            return runs

    run_all = blocking(arun_all)

    # -- internals -----------------------------------------------------------------------------

    def _block_on(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def _worker(self) -> ManualWorker:
        worker = self._app.worker(name="travel", worker_class=ManualWorker, **self._flags)
        assert isinstance(worker, ManualWorker)  # noqa: S101 - it is made by `of`.
        return worker

    def _still_waiting(self, within: timedelta) -> str:
        waiting = [job for job in self.jobs() if job.state in WAITING]
        return f"still waiting after {human(within)}:\n{self._listed(waiting)}"

    async def _move(self, worker: ManualWorker, at: datetime) -> int:
        span, self._clock.now = at - self._clock.now, at
        self._follow(at)
        worker.moved(span)
        return await worker.work()
