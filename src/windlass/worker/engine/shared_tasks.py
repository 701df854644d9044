"""Owns the tasks in which jobs run: many short runs share one, each as if it had its own.

A task per run would cost more than a short run itself: see decision 0015.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import copy_context
from datetime import timedelta
from types import coroutine
from typing import TYPE_CHECKING, Any

from windlass.core.claims.room import Pool
from windlass.core.jobs.outcomes import Released
from windlass.core.values.durations import human
from windlass.process.clocks import clock_of
from windlass.process.tasks import GuardedTask
from windlass.worker.engine.runs import Run
from windlass.worker.engine.start_pace import MAX_START_SECONDS, QuickKinds, StartPace

if TYPE_CHECKING:
    from windlass.worker.engine.engine import Engine

_ISOLATED = Pool.ISOLATED  # A lookup on an enum is slow.
_RUNS_PER_LOOP_TURN = 100
_SECONDS_PER_LOOP_TURN = 0.005
_LATE = Released(
    reason=f"it could not start within {human(timedelta(seconds=MAX_START_SECONDS))}", begun=False
)


class SharedTasks:
    """Starts runs in the order in which they were added, and gives back those that
    start too late.
    """

    def __init__(self, engine: Engine, quick: QuickKinds) -> None:
        self._engine = engine
        self._waiting: deque[Run] = deque()
        self.quick = quick
        self.ahead = 0
        """Number of waiting runs of quick kinds, which may be more than there are slots."""
        self.is_held = False
        """Whether runs wait because every slot is in use."""
        self._give_back: asyncio.TimerHandle | None = None
        self._pace = StartPace()
        self._task: GuardedTask | None = None
        self._loop = asyncio.get_running_loop()
        self._now = clock_of(self._loop)

    @property
    def has_waiting(self) -> bool:
        """Whether runs that were added can begin, and have not."""
        return bool(self._waiting) and not self.is_held

    @property
    def waiting(self) -> int:
        """Number of runs that were added and have not begun."""
        return len(self._waiting)

    @property
    def most(self) -> int:
        """Number of jobs, here and on their way, that can begin soon."""
        return self._pace.bite

    @property
    def appetite(self) -> int:
        """Number of further jobs that could begin soon; 0 until a claim is worthwhile."""
        most = self.most
        more = most - len(self._waiting)
        return more if 2 * more >= most else 0

    def start(self, run: Run) -> None:
        """Begin a run after those that were added before it."""
        self._waiting.append(run)
        if run.job.kind in self.quick.known:
            run.is_ahead = True
            self.ahead += 1
        if self._task is None:
            self._go_on()

    def slot_freed(self) -> None:
        """Begin the next run that waits for a slot."""
        self.is_held = False
        if self._task is None and self._waiting:
            self._go_on()

    async def _serve(self) -> None:
        """Process runs one after the other for as long as none of them waits.

        The first run that waits keeps the task, and another task continues with the rest. After
        some runs, or a few milliseconds, the event loop turns, so that the next claim can be sent.
        """
        task = asyncio.current_task()
        assert isinstance(task, GuardedTask), "see _start_task"  # noqa: S101
        try:
            await self._serve_with(task)
        finally:
            if self._task is task or self._task is None:
                self._hand_over()

    @coroutine
    def _serve_with(self, task: GuardedTask) -> Generator[Any, Any, None]:
        # Local names, since this loop is run for every job.
        engine, process, clock = self._engine, self._engine.process, self._now
        waiting, may_begin, quick = self._waiting, self._pace.may_begin, self.quick
        begun = None if engine.begun_jobs is None else engine.begun_jobs.add
        served, turn_ends = 0, clock() + _SECONDS_PER_LOOP_TURN
        while waiting and not self.is_held:
            run = waiting.popleft()
            self.ahead -= run.is_ahead
            if run.ended:
                engine.runs.abandoned -= 1
                continue
            now = clock()
            if not may_begin(run.began, now):
                engine.finish(run, run.stopped or _LATE)
                continue
            run.task, task.owner = task, None
            if begun is not None and run.pool is not _ISOLATED:
                begun(run.job)
            processing = process(run, task)
            # Context variables that the run sets stay in a context of its own.
            resume = copy_context().run
            try:
                waited_for = resume(processing.send, None)
            except StopIteration:
                if run.job.kind not in quick.known:
                    quick.ended_at_once(run.job.kind)
            else:
                quick.waited(run.job.kind)
                self._hand_over()
                yield from _drive(processing, resume, waited_for)
            if task.cancelling():
                return  # The cancellation of one run must not reach the next.
            served += 1
            if served % _RUNS_PER_LOOP_TURN == 0 or now > turn_ends:
                yield
                turn_ends = clock() + _SECONDS_PER_LOOP_TURN

    def _hand_over(self) -> None:
        self._task = None
        if self._waiting:
            self._go_on()
        else:
            self._pace.rest(self._now())

    def _go_on(self) -> None:
        """Begin the runs that wait, or hold them if every slot is in use."""
        self.is_held = not self._engine.has_free_slot(len(self._waiting))
        if not self.is_held:
            self._start_task()
            return
        self._pace.rest(self._now())
        if self._give_back is None:
            self._give_back_late()

    def _give_back_late(self) -> None:
        """Give back runs that have waited too long for a slot, now and as long as others wait."""
        self._give_back = None
        while self.is_held and self._waiting:
            run = self._waiting[0]
            left = self._pace.left(run.began, self._now())
            if left > 0:
                self._give_back = self._loop.call_later(left, self._give_back_late)
                return
            self._waiting.popleft()
            self.ahead -= run.is_ahead
            self.quick.forget()
            self._engine.finish(run, run.stopped or _LATE)

    def _start_task(self) -> None:
        # Not by the loop's own task factory: an eager task would end before it is assigned here.
        self._task = GuardedTask(self._serve(), loop=self._loop, name="windlass-run")


def _drive(
    processing: Coroutine[Any, Any, None], resume: Callable[..., Any], waited_for: Any
) -> Generator[Any, Any, None]:
    try:
        while True:
            try:
                answer = yield waited_for
            except BaseException as error:  # noqa: BLE001 - thrown into the coroutine.
                waited_for = resume(processing.throw, error)
            else:
                waited_for = resume(processing.send, answer)
    except StopIteration:
        return
