"""Owns time travel: an app on a fresh memory store, whose clock moves only when a test says so."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from windlass.app import Windlass
from windlass.app.portal import refuse_in_event_loop
from windlass.core.durations import Duration, duration, human
from windlass.core.errors import ConfigError
from windlass.core.job import Enqueued, NewJob, News
from windlass.core.states import WAITING
from windlass.runtime.by_hand import ByHand
from windlass.store.memory import MemoryStore
from windlass.testing.evidence import Evidence

START = datetime(2030, 1, 1, 12, tzinfo=UTC)
"""When a travel begins, unless it is said otherwise: a Tuesday, at noon."""


class _Clock:
    """The time of a travel."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now


class _Ground(MemoryStore):
    """Where a travel takes place: it holds any number of jobs, and forgets none.

    What is sent in a transaction of the user's is there at once if so wished, and else refused.
    """

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
                "jobs that travel are in memory, and so in nobody's transaction: with "
                "travel(app, tx_at_once=True) they are there at once, committed or not"
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
    library can set the clock of your own code. With `tx_at_once`, what is enqueued in a transaction
    is there at once, whether that is committed or not.

    Flags are a worker's (`slots=1`, `queues="mail"`). Unless they say otherwise there is one
    thread, so that `def` handlers run one after another.

    Raises:
        ValueError: the time has no time zone.

    Example:
        `with travel(app) as t: remind.enqueue("ada"); t.advance("1d"); t.assert_completed(remind)`
    """
    if at.tzinfo is None:
        raise ValueError(f"a time needs its time zone, and {at.isoformat()} has none")
    clock = _Clock(at.astimezone(UTC))
    store = _Ground(clock, tx_at_once=tx_at_once)
    follow(clock.now)
    # By a factory: a loop of the runner's own making would become the thread's current one.
    runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
    with app.on_store(store), closing(runner):
        yield Travel(app, store, clock, runner, follow, {"threads": 1, **flags})


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


class Travel(Evidence):
    """The time of a test: move it, and everything happens that would have happened meanwhile.

    Each call is the life of a worker: hooks and resources are opened before, and closed after it.
    What it runs is the app's own handlers, by the worker's own parts. The forms that begin with `a`
    are for coroutines, and run the handlers in their event loop.
    """

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
        """What time it is."""
        return self._clock.now

    async def arun_due(self) -> int:
        """Run what is due now, and what that enqueues; return how many runs there were.

        The clock stands still, so a retry or a snooze stays for later.
        """
        async with self._worker() as worker:
            return await worker.work()

    async def aadvance(self, span: Duration) -> int:
        """Let time pass, and run each job when it is due; return how many runs there were.

        Raises:
            ValueError: this is no duration, or a negative one.
        """
        return await self.aadvance_to(self.now + duration(span))

    async def aadvance_to(self, at: datetime) -> int:
        """Let time pass until a moment, as `aadvance` does.

        Raises:
            ValueError: it is in the past, or has no time zone.
        """
        if at.tzinfo is None or at < self.now:
            raise ValueError(f"time goes on from {self.now.isoformat()}, not to {at.isoformat()}")
        async with self._worker() as worker:
            runs = await worker.work()
            while (due := await worker.next_at()) is not None and due < at:
                runs += await self._move(worker, due)
            return runs + await self._move(worker, at)

    async def adrain(self, within: Duration = "365d") -> int:
        """Let time pass until no job waits for its time any more; return how many runs there were.

        Ticks of schedules come as it passes, and are not waited for; nor are events.

        Raises:
            AssertionError: jobs still wait after all that time.
        """
        end = self.now + duration(within)
        async with self._worker() as worker:
            runs = await worker.work()
            while (due := await worker.next_at(alarms=False)) is not None:
                if due > end:
                    raise AssertionError(self._still_waiting(duration(within)))
                runs += await self._move(worker, await worker.next_at() or due)
            return runs

    def run_due(self) -> int:
        """Do what `arun_due` does, from a test without an event loop."""
        refuse_in_event_loop("t.run_due()", "await t.arun_due()")
        return self._runner.run(self.arun_due())

    def advance(self, span: Duration) -> int:
        """Do what `aadvance` does, from a test without an event loop."""
        refuse_in_event_loop("t.advance(...)", "await t.aadvance(...)")
        return self._runner.run(self.aadvance(span))

    def advance_to(self, at: datetime) -> int:
        """Do what `aadvance_to` does, from a test without an event loop."""
        refuse_in_event_loop("t.advance_to(...)", "await t.aadvance_to(...)")
        return self._runner.run(self.aadvance_to(at))

    def drain(self, within: Duration = "365d") -> int:
        """Do what `adrain` does, from a test without an event loop."""
        refuse_in_event_loop("t.drain()", "await t.adrain()")
        return self._runner.run(self.adrain(within))

    # -- within --------------------------------------------------------------------------------

    def _worker(self) -> ByHand:
        worker = self._app.worker(name="travel", of=ByHand, **self._flags)
        assert isinstance(worker, ByHand)  # noqa: S101 - it is made by `of`.
        return worker

    def _still_waiting(self, within: timedelta) -> str:
        waiting = [job for job in self.jobs() if job.state in WAITING]
        return f"after {human(within)} there still wait:\n{self._listed(waiting)}"

    async def _move(self, worker: ByHand, at: datetime) -> int:
        span, self._clock.now = at - self._clock.now, at
        self._follow(at)
        worker.moved(span)
        return await worker.work()
